// What came out of sequences.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "conformance/findings.hpp"
#include "conformance/sequences/recording.hpp"

namespace cuvmm::conformance {

struct SequenceComparison {
  std::uint64_t seed = 0;
  Verdict verdict = Verdict::equal;  // equal, different or not_recorded
  std::size_t steps = 0;             // that were played
  // Of the first that differs:
  std::size_t step = 0;
  std::string call;
  std::string recorded;
  std::string answered;
};

// Compares what was played with what was recorded for the seed, step by step up to the first difference, behind which
// the calls are not the same any more.
[[nodiscard]] SequenceComparison compare(const RecordedSequence& played, const RecordedSequence* recorded, int devices);

struct SequenceFindings {
  Subject subject;
  std::string recorded_machine;
  std::vector<SequenceComparison> sequences;
  std::chrono::seconds time_limit{0};  // of a process that plays a hundred

  [[nodiscard]] std::size_t count(Verdict verdict) const;
};

[[nodiscard]] std::string as_page(const SequenceFindings& findings);
[[nodiscard]] std::string as_json(const SequenceFindings& findings);

// What recorded sequences are made of.
struct CallStatistics {
  std::size_t calls = 0;
  std::map<CUresult, std::size_t> codes;
};
struct SequenceStatistics {
  std::string machine;
  std::vector<std::size_t> lengths;             // sorted
  std::map<std::string, CallStatistics> calls;  // by name
  std::size_t ended_early = 0;

  [[nodiscard]] std::size_t steps() const;
};
[[nodiscard]] SequenceStatistics statistics_of(const Recording& recording);

[[nodiscard]] std::string as_page(const SequenceStatistics& statistics);
[[nodiscard]] std::string as_json(const SequenceStatistics& statistics);

}  // namespace cuvmm::conformance
