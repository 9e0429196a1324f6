#include "conformance/cases/case_process.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <list>
#include <map>
#include <stdexcept>
#include <utility>

namespace cuvmm::conformance {

namespace {

// A fault ends the process with its signal and no core; the time limit does with SIGALRM.
void prepare_to_die(std::chrono::seconds time_limit) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (const int each : {SIGSEGV, SIGBUS, SIGABRT, SIGALRM}) signal(each, SIG_DFL);
  alarm(static_cast<unsigned>(time_limit.count()));
}

std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(descriptor, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  return text;
}

int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

std::string perform(const Case& wanted, const DriverFactory& make_driver) {
  try {
    // Never taken down, as a driver that a case has broken might not come to an end.
    Environment& cuda = *new Environment{make_driver};
    if (const auto failed = cuda.begin(wanted.needs.start)) return *failed;
    if (wanted.needs.start >= Start::initialized && cuda.device_count() < wanted.needs.devices)
      return "(needs " + std::to_string(wanted.needs.devices) + " devices)";
    const std::string answer = wanted.function(cuda).text();
    return cuda.notes() + answer;
  } catch (const std::exception& error) {
    return std::string{"(exception: "} + error.what() + ")";
  }
}

void write_answer(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(descriptor, text.data() + done, text.size() - done);
    if (written <= 0) return;
    done += static_cast<std::size_t>(written);
  }
}

Performer forked(DriverFactory make_driver) {
  return [make_driver = std::move(make_driver)](const Case& wanted, int descriptor) {
    write_answer(descriptor, perform(wanted, make_driver));
  };
}

CaseProcess::CaseProcess(const Case& wanted, const Performer& performer, std::chrono::seconds time_limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  process_ = fork();
  if (process_ < 0) throw std::runtime_error("fork failed");
  if (process_ == 0) {
    close(ends[0]);
    prepare_to_die(time_limit);
    performer(wanted, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  pipe_ = ends[0];
}

CaseProcess::~CaseProcess() {
  close(pipe_);
}

std::string CaseProcess::answer(int status) const {
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM ? "(timeout)" : "(signal " + std::to_string(WTERMSIG(status)) + ")";
  if (WEXITSTATUS(status) != 0) return "(exit " + std::to_string(WEXITSTATUS(status)) + ")";
  return read_all(pipe_);
}

std::string run_case(const Case& wanted, const Performer& performer, std::chrono::seconds time_limit) {
  const CaseProcess process{wanted, performer, time_limit};
  return process.answer(wait_for(process.id()));
}

namespace {

// Cases on their way, and answers that wait for earlier ones.
class Queue {
 public:
  Queue(const std::vector<Case>& cases, const Report& report) : cases_(cases), report_(report) {}

  [[nodiscard]] std::size_t running() const noexcept { return running_.size(); }
  void start(std::size_t index, const Performer& performer, std::chrono::seconds time_limit) {
    running_.emplace_back(index, cases_[index], performer, time_limit);
  }
  // Waits until one case is done.
  void finish_one() {
    int status = 0;
    const pid_t gone = waitpid(-1, &status, 0);
    for (auto each = running_.begin(); each != running_.end(); ++each) {
      if (each->process.id() != gone) continue;
      answers_[each->index] = each->process.answer(status);
      running_.erase(each);
      break;
    }
    report_in_order();
  }

 private:
  struct Running {
    Running(std::size_t place, const Case& wanted, const Performer& performer, std::chrono::seconds time_limit)
        : index(place), process(wanted, performer, time_limit) {}

    std::size_t index;
    CaseProcess process;
  };

  void report_in_order() {
    for (auto first = answers_.find(reported_); first != answers_.end(); first = answers_.find(reported_)) {
      report_(cases_[reported_], first->second);
      answers_.erase(first);
      ++reported_;
    }
  }

  const std::vector<Case>& cases_;
  const Report& report_;
  std::list<Running> running_;
  std::map<std::size_t, std::string> answers_;
  std::size_t reported_ = 0;
};

}  // namespace

void run_cases(const std::vector<Case>& cases, const Performer& performer, const RunOptions& options,
               const Report& report) {
  Queue queue{cases, report};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const bool alone = cases[i].needs.alone;
    while (queue.running() >= (alone ? 1 : options.jobs)) queue.finish_one();
    queue.start(i, performer, options.time_limit);
    if (alone)
      while (queue.running() > 0) queue.finish_one();
  }
  while (queue.running() > 0) queue.finish_one();
}

}  // namespace cuvmm::conformance
