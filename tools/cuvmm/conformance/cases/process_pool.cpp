#include "conformance/cases/process_pool.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <list>
#include <map>
#include <system_error>

namespace cuvmm::conformance {

namespace {

[[noreturn]] void throw_system_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// A fault ends the process with its signal and no core; the time limit does with SIGALRM.
void prepare_to_die(std::chrono::seconds time_limit) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (const int each : {SIGSEGV, SIGBUS, SIGABRT, SIGALRM}) signal(each, SIG_DFL);
  alarm(static_cast<unsigned>(time_limit.count()));
}

}  // namespace

std::string Ended::complaint() const {
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM ? "(timeout)" : "(signal " + std::to_string(WTERMSIG(status)) + ")";
  return WEXITSTATUS(status) == 0 ? "" : "(exit " + std::to_string(WEXITSTATUS(status)) + ")";
}

TaskProcess::TaskProcess(const Task& task, std::chrono::seconds time_limit) {
  output_ = memfd_create("output", MFD_CLOEXEC);
  if (output_ < 0) throw_system_error("a file for the output of a process");
  process_ = fork();
  if (process_ < 0) {
    close(output_);
    throw_system_error("a process");
  }
  if (process_ == 0) {
    prepare_to_die(time_limit);
    task.perform(output_);
    _exit(0);
  }
}

TaskProcess::~TaskProcess() {
  close(output_);
}

Ended TaskProcess::ended(int status) const {
  Ended ended{status, {}};
  char buffer[4096];
  for (off_t at = 0;;) {
    const ssize_t got = pread(output_, buffer, sizeof buffer, at);
    if (got <= 0) return ended;
    ended.output.append(buffer, static_cast<std::size_t>(got));
    at += got;
  }
}

void write_to(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(descriptor, text.data() + done, text.size() - done);
    if (written <= 0) return;
    done += static_cast<std::size_t>(written);
  }
}

namespace {

// Tasks on their way, and ends that wait for those of earlier tasks.
class Pool {
 public:
  explicit Pool(const ReportEnd& report) : report_(report) {}

  [[nodiscard]] std::size_t running() const noexcept { return running_.size(); }
  void start(std::size_t index, const Task& task, std::chrono::seconds time_limit) {
    running_.emplace_back(index, task, time_limit);
  }
  // Waits until one task is done.
  void finish_one() {
    int status = 0;
    const pid_t gone = waitpid(-1, &status, 0);
    for (auto each = running_.begin(); each != running_.end(); ++each) {
      if (each->process.id() != gone) continue;
      ends_.emplace(each->index, each->process.ended(status));
      running_.erase(each);
      break;
    }
    report_in_order();
  }

 private:
  struct Running {
    Running(std::size_t place, const Task& task, std::chrono::seconds time_limit)
        : index(place), process(task, time_limit) {}

    std::size_t index;
    TaskProcess process;
  };

  void report_in_order() {
    for (auto first = ends_.find(reported_); first != ends_.end(); first = ends_.find(reported_)) {
      report_(reported_, first->second);
      ends_.erase(first);
      ++reported_;
    }
  }

  const ReportEnd& report_;
  std::list<Running> running_;
  std::map<std::size_t, Ended> ends_;
  std::size_t reported_ = 0;
};

}  // namespace

void run_tasks(const std::vector<Task>& tasks, const PoolOptions& options, const ReportEnd& report) {
  Pool pool{report};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    while (pool.running() >= (tasks[i].alone ? 1 : options.jobs)) pool.finish_one();
    pool.start(i, tasks[i], options.time_limit);
    if (tasks[i].alone)
      while (pool.running() > 0) pool.finish_one();
  }
  while (pool.running() > 0) pool.finish_one();
}

}  // namespace cuvmm::conformance
