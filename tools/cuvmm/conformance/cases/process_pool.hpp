// Tasks in processes of their own, several at a time: a task may crash, hang, or leave a driver broken behind it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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

// What is answered for a task that was ended because its time was over.
inline constexpr std::string_view timed_out_answer = "(timed out)";

// How a task's process came to its end.
struct Ended {
  int status = 0;          // as waitpid tells it
  bool timed_out = false;  // it did not end within its time, and was killed
  std::string output;      // what was written until then

  // "(signal 11)", "(timed out)", "(exit 1)"; empty if it ended by itself and well.
  [[nodiscard]] std::string complaint() const;
};

// A process for one task, forked from this one. What it writes is kept even if it dies. It is killed, and with it all
// that it has started and that still belongs to its process group, when its time is over, and when its parent ends.
class TaskProcess {
 public:
  TaskProcess(const Task& task, std::chrono::seconds time_limit);
  TaskProcess(const TaskProcess&) = delete;
  TaskProcess& operator=(const TaskProcess&) = delete;
  TaskProcess(TaskProcess&&) = delete;
  TaskProcess& operator=(TaskProcess&&) = delete;
  ~TaskProcess();

  // How it ended; nothing if it is still at work and has time left. To be asked until it tells, and not again.
  [[nodiscard]] std::optional<Ended> poll();
  // Waits for that.
  [[nodiscard]] Ended wait();

 private:
  [[nodiscard]] bool is_gone() const;
  // Kills what is left, and returns the status.
  int end() noexcept;
  [[nodiscard]] std::string output() const;

  int output_ = -1;
  pid_t process_ = -1;  // -1 once it has been waited for
  std::chrono::steady_clock::time_point deadline_;
};

// Writes all of the text to the descriptor, if that can be written to.
void write_to(int descriptor, const std::string& text);

// Runs the tasks and reports how they ended, in their order.
using ReportEnd = std::function<void(std::size_t index, const Ended&)>;
void run_tasks(const std::vector<Task>& tasks, const PoolOptions& options, const ReportEnd& report);

}  // namespace cuvmm::conformance
