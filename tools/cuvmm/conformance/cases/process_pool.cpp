#include "conformance/cases/process_pool.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <list>
#include <map>
#include <system_error>
#include <thread>

namespace cuvmm::conformance {

namespace {

[[noreturn]] void throw_system_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// A fault ends the process with its signal and no core; the end of its parent does, too.
void prepare_to_die(pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it ended before it could be told of
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (const int each : {SIGSEGV, SIGBUS, SIGABRT}) signal(each, SIG_DFL);
}

// Between two looks at what a process does: it grows with the time that nothing happens, so that neither a short task
// waits long nor a long one is looked at often.
class Pauses {
 public:
  void pause() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, std::chrono::microseconds{20'000});
  }

 private:
  std::chrono::microseconds next_{500};
};

}  // namespace

std::string Ended::complaint() const {
  if (timed_out) return std::string{timed_out_answer};
  if (WIFSIGNALED(status)) return "(signal " + std::to_string(WTERMSIG(status)) + ")";
  return WEXITSTATUS(status) == 0 ? "" : "(exit " + std::to_string(WEXITSTATUS(status)) + ")";
}

TaskProcess::TaskProcess(const Task& task, std::chrono::seconds time_limit)
    : deadline_(std::chrono::steady_clock::now() + time_limit) {
  output_ = memfd_create("output", MFD_CLOEXEC);
  if (output_ < 0) throw_system_error("a file for the output of a process");
  signal(SIGCHLD, SIG_DFL);  // ignored, as a parent may have left it, it would take the child's status away
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ < 0) {
    const int error = errno;
    close(output_);
    errno = error;
    throw_system_error("a process");
  }
  if (process_ == 0) {
    prepare_to_die(parent);
    task.perform(output_);
    _exit(0);
  }
  setpgid(process_, process_);  // as the child does: whoever comes first
}

TaskProcess::~TaskProcess() {
  if (process_ >= 0) end();
  close(output_);
}

bool TaskProcess::is_gone() const {
  siginfo_t info{};
  int result = 0;
  do result = waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT);
  while (result < 0 && errno == EINTR);
  if (result < 0) throw_system_error("the end of a process");
  return info.si_pid == process_;
}

// The group first, while its leader is there to keep its number from being somebody else's.
int TaskProcess::end() noexcept {
  kill(-process_, SIGKILL);
  kill(process_, SIGKILL);
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  return status;
}

std::optional<Ended> TaskProcess::poll() {
  const bool gone = is_gone();
  if (!gone && std::chrono::steady_clock::now() < deadline_) return std::nullopt;
  const int status = end();
  return Ended{status, !gone, output()};
}

Ended TaskProcess::wait() {
  for (Pauses pauses;; pauses.pause())
    if (auto ended = poll()) return *std::move(ended);
}

std::string TaskProcess::output() const {
  std::string text;
  char buffer[4096];
  for (off_t at = 0;;) {
    const ssize_t got = pread(output_, buffer, sizeof buffer, at);
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
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
  // Waits until at least one task is done.
  void finish_some() {
    const std::size_t before = running_.size();
    for (Pauses pauses;; pauses.pause()) {
      for (auto each = running_.begin(); each != running_.end();) {
        auto ended = each->process.poll();
        if (ended) ends_.emplace(each->index, *std::move(ended));
        each = ended ? running_.erase(each) : std::next(each);
      }
      if (running_.size() < before) break;
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
    while (pool.running() >= (tasks[i].alone ? 1 : options.jobs)) pool.finish_some();
    pool.start(i, tasks[i], options.time_limit);
    if (tasks[i].alone)
      while (pool.running() > 0) pool.finish_some();
  }
  while (pool.running() > 0) pool.finish_some();
}

}  // namespace cuvmm::conformance
