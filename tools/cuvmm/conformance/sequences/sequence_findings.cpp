#include "conformance/sequences/sequence_findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "conformance/sequences/generator.hpp"

namespace cuvmm::conformance {
namespace {

// "INVALID_VALUE", "OK 3fc9", "the end !11 of calls 0abc1234".
std::string step_in_words(const RecordedSequence& sequence, std::size_t step) {
  if (step >= sequence.steps.size())
    return fmt::format("the end{}{} of calls {}", sequence.end.empty() ? "" : " ", sequence.end,
                       hexadecimal(sequence.checksum));
  const Step& each = sequence.steps[step];
  return result_name(each.code) + (each.seen.empty() ? "" : " " + each.seen);
}

}  // namespace

SequenceComparison compare(const RecordedSequence& played, const RecordedSequence* recorded, int devices) {
  SequenceComparison comparison;
  comparison.seed = played.seed;
  comparison.steps = played.steps.size();
  if (played.end == timed_out_end) {  // also where a recorded one did: it tells nothing of the driver
    comparison.verdict = Verdict::timed_out;
    comparison.step = played.steps.size();
    comparison.call = call_of_step(played.seed, devices, played.steps, comparison.step);
    return comparison;
  }
  if (recorded == nullptr) {
    comparison.verdict = Verdict::not_recorded;
    return comparison;
  }
  if (played.steps == recorded->steps && played.end == recorded->end && played.checksum == recorded->checksum)
    return comparison;
  comparison.verdict = Verdict::different;
  std::size_t& step = comparison.step;
  while (step < played.steps.size() && step < recorded->steps.size() && played.steps[step] == recorded->steps[step])
    ++step;
  comparison.call = call_of_step(played.seed, devices, recorded->steps, step);
  comparison.recorded = step_in_words(*recorded, step);
  comparison.answered = step_in_words(played, step);
  return comparison;
}

std::size_t SequenceFindings::count(Verdict verdict) const {
  return static_cast<std::size_t>(std::count_if(
      sequences.begin(), sequences.end(), [&](const SequenceComparison& each) { return each.verdict == verdict; }));
}

std::size_t SequenceStatistics::steps() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
}

SequenceStatistics statistics_of(const Recording& recording) {
  SequenceStatistics statistics;
  statistics.machine = recording.machine;
  for (const Operation& each : operations()) statistics.calls[std::string{each.name}];
  for (const RecordedSequence& sequence : recording.sequences) {
    Generator generator{sequence.seed, recording.devices};
    for (const Step& step : sequence.steps) {
      const auto call = generator.next();
      if (!call) break;
      CallStatistics& calls = statistics.calls[std::string{call->operation->name}];
      ++calls.calls;
      ++calls.codes[step.code];
      generator.answered(step.code);
    }
    statistics.lengths.push_back(sequence.steps.size());
    if (!sequence.end.empty()) ++statistics.ended_early;
  }
  std::sort(statistics.lengths.begin(), statistics.lengths.end());
  return statistics;
}

}  // namespace cuvmm::conformance
