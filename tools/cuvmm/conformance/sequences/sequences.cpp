#include "conformance/sequences/sequences.hpp"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "command/input_error.hpp"
#include "command/output.hpp"
#include "command/text_file.hpp"
#include "command/words.hpp"
#include "conformance/sequences/generator.hpp"
#include "conformance/sequences/play.hpp"
#include "conformance/sequences/sequence_findings.hpp"
#include "conformance/subject.hpp"

namespace cuvmm::conformance {
namespace {

constexpr std::uint64_t default_seed = 1;
constexpr std::uint64_t most_recording_bytes = std::uint64_t{64} << 20;  // some 700,000 sequences
constexpr unsigned default_time_limit = 300;  // seconds of a process; it ends what hangs, on slow machines too

Recording recording_for(const Options& options, const Recordings& recordings) {
  if (options.sequences_file)
    return parse_recording(command::content_of_file(*options.sequences_file, most_recording_bytes),
                           *options.sequences_file);
  return parse_recording(recordings.sequences, "the recorded sequences of " + std::string{recordings.profile});
}

// The seeds that are asked for.
struct Seeds {
  std::uint64_t first;
  std::uint64_t count;

  [[nodiscard]] bool contain(std::uint64_t seed) const { return seed >= first && seed - first < count; }
};

Seeds seeds_of(const Options& options, const Recording& recording) {
  const std::uint64_t recorded = recording.sequences.empty() ? default_seed : recording.sequences.front().seed;
  const Seeds seeds{options.seed.value_or(recorded), options.sequences.value()};
  if (seeds.count - 1 > std::numeric_limits<std::uint64_t>::max() - seeds.first)
    throw command::InputError(
        fmt::format("There are not {} seeds from {} on: the last one is 2^64 - 1.", seeds.count, seeds.first));
  return seeds;
}

// A recording that was changed may have answers that no driver gives, of which nobody can say what follows.
bool gives_the_same_calls(const RecordedSequence& sequence, const Recording& recording) {
  return recording.generator == Generator::version &&
         checksum_of_calls(sequence.seed, recording.devices, sequence.steps) == sequence.checksum;
}

// Those of the recording. Throws command::InputError if their calls were others when they were recorded.
std::map<std::uint64_t, RecordedSequence> recorded_for(const Seeds& seeds, const Recording& recording) {
  std::map<std::uint64_t, RecordedSequence> found;
  for (const RecordedSequence& each : recording.sequences) {
    if (!seeds.contain(each.seed)) continue;
    if (!gives_the_same_calls(each, recording))
      throw command::InputError(
          fmt::format("The generator of sequences has changed since they were recorded, or the recording was changed: "
                      "seed {} gives other calls. Record again with --record.",
                      each.seed));
    found.emplace(each.seed, each);
  }
  return found;
}

int tell_statistics(const Options& options, const Recordings& recordings) {
  Recording recording = recording_for(options, recordings);
  const auto wanted = recorded_for(seeds_of(options, recording), recording);
  recording.sequences.clear();
  for (const auto& [seed, sequence] : wanted) recording.sequences.push_back(sequence);
  const SequenceStatistics statistics = statistics_of(recording);
  command::write_out(options.json ? as_json(statistics) : as_page(statistics));
  return 0;
}

void record(const std::string& path, const Subject& subject, const std::vector<RecordedSequence>& played) {
  command::write_file(path, to_text(Recording{Generator::version, subject.devices,
                                              fmt::format("{}, {}", subject.device, subject.driver), played}));
}

}  // namespace

int run_sequences(const Options& options) {
  if (options.statistics) return tell_statistics(options, recordings_of(options));
  ChosenSubject chosen = choose_subject(options);
  const Recording recording = recording_for(options, *chosen.recordings);
  const Seeds seeds = seeds_of(options, recording);
  if (options.record) command::check_writable(*options.record);
  // What is recorded anew needs no recording that it could be compared with.
  const auto recorded = options.record ? std::map<std::uint64_t, RecordedSequence>{} : recorded_for(seeds, recording);
  if (!recorded.empty() && chosen.subject.devices != recording.devices)
    throw command::InputError(
        fmt::format("The sequences were recorded with {0} devices: take --devices {0}.", recording.devices));
  chosen.process.devices = chosen.subject.devices;
  const std::chrono::seconds time_limit{options.time_limit.value_or(default_time_limit)};
  const auto played = play_in_processes(seeds.first, seeds.count, chosen.process, {time_limit, options.jobs});
  if (options.record) record(*options.record, chosen.subject, played);

  SequenceFindings findings{chosen.subject, recording.machine, {}, time_limit};
  for (const RecordedSequence& each : played) {
    const auto before = recorded.find(each.seed);
    findings.sequences.push_back(
        compare(each, before == recorded.end() ? nullptr : &before->second, chosen.subject.devices));
  }
  command::write_out(options.json ? as_json(findings) : as_page(findings));
  return findings.count(Verdict::different) == 0 && findings.count(Verdict::timed_out) == 0 ? 0 : 1;
}

}  // namespace cuvmm::conformance
