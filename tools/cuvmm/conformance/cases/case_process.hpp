// Runs conformance cases, each in a fresh process: a case may crash, hang, or leave a driver broken behind it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "conformance/cases/case.hpp"

namespace cuvmm::conformance {

struct RunOptions {
  std::chrono::seconds time_limit{20};  // of one case
  unsigned jobs = 1;                    // cases at a time; a case that must be alone is
};

// Performs a case in the process that is there for it, and writes the answer to the descriptor. It need not return.
using Performer = std::function<void(const Case&, int descriptor)>;

// The answer of a case: performs it with a driver made now, in this process, of which nothing else can be asked then.
[[nodiscard]] std::string perform(const Case& wanted, const DriverFactory& make_driver);
void write_answer(int descriptor, const std::string& text);

// Performs cases in the forked process itself: for programs in which no driver was made before.
[[nodiscard]] Performer forked(DriverFactory make_driver);

// One case in a process of its own, forked from this one.
class CaseProcess {
 public:
  CaseProcess(const Case& wanted, const Performer& performer, std::chrono::seconds time_limit);
  CaseProcess(const CaseProcess&) = delete;
  CaseProcess& operator=(const CaseProcess&) = delete;
  ~CaseProcess();

  [[nodiscard]] pid_t id() const noexcept { return process_; }
  // The answer, once the process is gone with `status`: what the case said, or "(signal 11)", "(timeout)", "(exit 1)".
  [[nodiscard]] std::string answer(int status) const;

 private:
  int pipe_ = -1;
  pid_t process_ = -1;
};

// Runs one case and waits for it.
[[nodiscard]] std::string run_case(const Case& wanted, const Performer& performer,
                                   std::chrono::seconds time_limit = RunOptions{}.time_limit);

// Runs the cases, several at a time, and reports their answers in their order.
using Report = std::function<void(const Case&, const std::string& answer)>;
void run_cases(const std::vector<Case>& cases, const Performer& performer, const RunOptions& options,
               const Report& report);

}  // namespace cuvmm::conformance
