// Work done in a child process: what would end the test program, or limit it for good.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

// In a function that answers an int: says what did not hold, and answers 1.
#define CHILD_CHECK(condition)                                                           \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: in the child: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                          \
    }                                                                                    \
  } while (false)

namespace cuvmm::emulator::test {

// Runs `work() -> int` in a child process, which exits with its answer, and answers the child's wait status. A child
// that hangs is ended by a signal after some minutes, so that the test fails.
template <class Work>
int status_in_child(Work&& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    (void)::setrlimit(RLIMIT_CORE, &no_core);
    (void)::alarm(300);
    for (const int deadly : {SIGSEGV, SIGBUS}) (void)std::signal(deadly, SIG_DFL);
    ::_exit(work());
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

// Whether the work was done and answered 0.
template <class Work>
bool succeeds_in_child(Work&& work) {
  const int status = status_in_child(work);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Whether the work was ended by that signal.
template <class Work>
bool dies_in_child(int signal, Work&& work) {
  const int status = status_in_child([&] {
    work();
    return 0;
  });
  return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

// Whether the process may read, or write, the byte at that address.
inline bool readable(unsigned long long address) {
  return succeeds_in_child([&] {
    (void)*reinterpret_cast<volatile unsigned char*>(address);
    return 0;
  });
}
inline bool writable(unsigned long long address) {
  return succeeds_in_child([&] {
    auto* byte = reinterpret_cast<volatile unsigned char*>(address);
    *byte = *byte;
    return 0;
  });
}

}  // namespace cuvmm::emulator::test
