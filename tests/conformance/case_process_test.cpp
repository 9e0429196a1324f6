#include "conformance/cases/case_process.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <new>
#include <stdexcept>

#include "fake_driver.hpp"

namespace cuvmm::conformance {

namespace {

using namespace std::chrono_literals;

constexpr Needs no_driver{Start::nothing, 1, false, false};
constexpr Needs no_driver_alone{Start::nothing, 1, true, false};

DriverFactory no_factory() {
  return [] { return std::shared_ptr<driver::Interface>(); };
}

// A driver with that many devices.
DriverFactory fake_driver(int devices, CUresult initialisation = CUDA_SUCCESS) {
  return [=] {
    auto fake = std::make_shared<test::FakeDriver>();
    fake->on_cuInit = [=](unsigned) { return initialisation; };
    fake->on_cuDeviceGetCount = [=](int* count) {
      *count = devices;
      return CUDA_SUCCESS;
    };
    return fake;
  };
}

std::string run(CaseFunction function, Needs needs = no_driver, const DriverFactory& factory = no_factory(),
                std::chrono::seconds time_limit = 60s) {
  return run_case({"a.case", std::move(function), needs}, forked(factory), time_limit);
}

TEST(CaseProcess, AnswersWhatTheCaseSays) {
  EXPECT_EQ(run([](Environment&) { return "OK/3"; }), "OK/3");
}

TEST(CaseProcess, NamesTheSignalOfACrash) {
  EXPECT_EQ(run([](Environment&) {
              raise(SIGSEGV);
              return "survived";
            }),
            "(signal 11)");
}

TEST(CaseProcess, EndsACaseThatHangs) {
  EXPECT_EQ(run(
                [](Environment&) -> Answer {
                  for (;;) pause();
                },
                no_driver, no_factory(), 1s),
            "(timed out)");
}

TEST(CaseProcess, EndsACaseThatHangsWhateverSignalsItBlocks) {
  EXPECT_EQ(run(
                [](Environment&) -> Answer {
                  sigset_t all;
                  sigfillset(&all);
                  sigprocmask(SIG_BLOCK, &all, nullptr);
                  for (;;) pause();
                },
                no_driver, no_factory(), 1s),
            "(timed out)");
}

TEST(CaseProcess, LeavesACaseThatEndsInTimeAlone) {
  EXPECT_EQ(run(
                [](Environment&) {
                  usleep(1000);
                  return "in time";
                },
                no_driver, no_factory(), 60s),
            "in time");
}

// Whether it ends; long enough for a machine that has much else to do.
bool ends(pid_t process) {
  for (int i = 0; i < 12'000; ++i) {
    if (kill(process, 0) != 0) return true;
    usleep(5000);
  }
  return false;
}

TEST(CaseProcess, EndsWhatACaseThatHangsHasStarted) {
  pid_t* const started =
      static_cast<pid_t*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  EXPECT_EQ(run(
                [started](Environment&) -> Answer {
                  const pid_t child = fork();
                  if (child == 0)
                    for (;;) pause();
                  *started = child;
                  for (;;) pause();
                },
                no_driver, no_factory(), 1s),
            "(timed out)");
  ASSERT_GT(*started, 0);
  // Whoever takes over orphans here may leave it as a zombie: then it has been ended all the same.
  EXPECT_TRUE(ends(*started) || waitpid(*started, nullptr, WNOHANG) == *started);
  munmap(started, 4096);
}

TEST(RunTasks, WorksWhereTheEndsOfChildrenAreIgnored) {
  signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run([](Environment&) { return "OK"; }), "OK");
  signal(SIGCHLD, SIG_DFL);
}

TEST(CaseProcess, NamesAnExitWithoutAnswer) {
  EXPECT_EQ(run([](Environment&) -> Answer { _exit(3); }), "(exit 3)");
}

TEST(CaseProcess, NamesAnException) {
  EXPECT_EQ(run([](Environment&) -> Answer { throw std::runtime_error("no luck"); }), "(exception: no luck)");
}

TEST(CaseProcess, PutsNotesOfFailedSetUpFirst) {
  EXPECT_EQ(run([](Environment& cuda) {
              cuda.expect("create", CUDA_ERROR_OUT_OF_MEMORY);
              cuda.expect("map", CUDA_SUCCESS);
              return "OK";
            }),
            "[setup create OUT_OF_MEMORY]OK");
}

TEST(CaseProcess, TellsWhyADriverCannotBeBegunWith) {
  const auto ok = [](Environment&) { return "OK"; };
  EXPECT_EQ(run(ok, needs_initialized, fake_driver(1, CUDA_ERROR_NO_DEVICE)), "(cuInit NO_DEVICE)");
  EXPECT_EQ(run(ok, needs_initialized, fake_driver(1)), "OK");
}

TEST(CaseProcess, TellsThatDevicesAreMissing) {
  const auto ok = [](Environment&) { return "OK"; };
  EXPECT_EQ(run(ok, needs_two_devices, fake_driver(1)), "(needs 2 devices)");
  EXPECT_EQ(run(ok, needs_two_devices, fake_driver(2)), "OK");
}

TEST(RunTasks, KeepsWhatWasWrittenBeforeACrash) {
  const Task dying{[](int descriptor) {
    write_to(descriptor, "so far");
    raise(SIGSEGV);
  }};
  run_tasks({dying}, {60s, 1}, [](std::size_t, const Ended& ended) {
    EXPECT_EQ(ended.output, "so far");
    EXPECT_EQ(ended.complaint(), "(signal 11)");
  });
}

TEST(RunCases, ReportsInTheOrderOfTheCases) {
  std::vector<Case> cases;
  cases.reserve(12);
  for (int i = 0; i < 12; ++i)
    cases.push_back({"a." + std::to_string(i),
                     [i](Environment&) {
                       if (i % 3 == 0) usleep(20'000);
                       return i;
                     },
                     no_driver});
  std::string order;
  run_cases(cases, forked(no_factory()), {60s, 4}, [&](const Case& each, const std::string& answer) {
    EXPECT_EQ(each.id, "a." + answer);
    order += answer + " ";
  });
  EXPECT_EQ(order, "0 1 2 3 4 5 6 7 8 9 10 11 ");
}

// A counter that all processes see.
class Shared {
 public:
  Shared()
      : counter_(new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                     std::atomic<int>(0)) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { munmap(counter_, 4096); }
  std::atomic<int>& operator*() { return *counter_; }

 private:
  std::atomic<int>* counter_;
};

// How many cases ran at the most while this one did.
Answer company(std::atomic<int>& running) {
  int most = ++running;
  for (int i = 0; i < 20; ++i) {
    usleep(1000);
    most = std::max(most, running.load());
  }
  --running;
  return most;
}

TEST(RunCases, RunsACaseAloneThatAsksForIt) {
  Shared running;
  std::vector<Case> cases;
  cases.reserve(9);
  for (int i = 0; i < 9; ++i)
    cases.push_back({"a." + std::to_string(i), [&](Environment&) { return company(*running); },
                     i % 3 == 1 ? no_driver_alone : no_driver});
  run_cases(cases, forked(no_factory()), {60s, 4}, [](const Case& each, const std::string& answer) {
    if (each.needs.alone) {
      EXPECT_EQ(answer, "1") << each.id;
    }
  });
}

TEST(RunCases, RunsNoMoreAtATimeThanAsked) {
  Shared running;
  std::vector<Case> cases;
  cases.reserve(9);
  for (int i = 0; i < 9; ++i)
    cases.push_back({"a." + std::to_string(i), [&](Environment&) { return company(*running); }, no_driver});
  run_cases(cases, forked(no_factory()), {60s, 3},
            [](const Case& each, const std::string& answer) { EXPECT_LE(std::stoi(answer), 3) << each.id; });
}

TEST(Table, RefusesAnIdThatIsThereOrHasBlanks) {
  Table table;
  const auto ok = [](Environment&) { return "OK"; };
  table.add("a.one", ok);
  EXPECT_THROW(table.add("a.one", ok), std::logic_error);
  EXPECT_NO_THROW(table.add("a.two", ok));
  EXPECT_THROW(table.add("a.blank ", ok), std::logic_error);
  EXPECT_THROW(table.add("a\ttab", ok), std::logic_error);
  EXPECT_NE(table.find("a.two"), nullptr);
  EXPECT_EQ(table.find("a.three"), nullptr);
}

}  // namespace

}  // namespace cuvmm::conformance
