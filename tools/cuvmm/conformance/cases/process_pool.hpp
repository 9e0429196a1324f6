// Tasks in processes of their own, several at a time: a task may crash, hang, or leave a driver broken behind it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace cuvmm::conformance {

struct PoolOptions {
  std::chrono::seconds time_limit{20};  // of one task
  unsigned jobs = 1;                    // tasks at a time; one that must be alone is
};

struct Task {
  std::function<void(int descriptor)> perform;  // writes to the descriptor; need not return
  bool alone = false;
};

// How a task's process came to its end.
struct Ended {
  int status = 0;      // as waitpid tells it
  std::string output;  // what was written until then

  // "(signal 11)", "(timeout)", "(exit 1)"; empty if it ended by itself and well.
  [[nodiscard]] std::string complaint() const;
};

// A process for one task, forked from this one. What it writes is kept even if it dies.
class TaskProcess {
 public:
  TaskProcess(const Task& task, std::chrono::seconds time_limit);
  TaskProcess(const TaskProcess&) = delete;
  TaskProcess& operator=(const TaskProcess&) = delete;
  TaskProcess(TaskProcess&&) = delete;
  TaskProcess& operator=(TaskProcess&&) = delete;
  ~TaskProcess();

  [[nodiscard]] pid_t id() const noexcept { return process_; }
  // Once the process is gone with `status`.
  [[nodiscard]] Ended ended(int status) const;

 private:
  int output_ = -1;
  pid_t process_ = -1;
};

// Writes all of the text to the descriptor, if that can be written to.
void write_to(int descriptor, const std::string& text);

// Runs the tasks and reports how they ended, in their order. For a process that has no other children.
using ReportEnd = std::function<void(std::size_t index, const Ended&)>;
void run_tasks(const std::vector<Task>& tasks, const PoolOptions& options, const ReportEnd& report);

}  // namespace cuvmm::conformance
