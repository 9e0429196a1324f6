// What confines a process: filters of system calls, and another user.
#pragma once

#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

namespace cuvmm::tests {

// What takes descriptors out of other processes is denied from now on, as containers deny it.
inline bool deny_taking_descriptors() {
  constexpr unsigned denied[] = {SYS_pidfd_getfd, SYS_pidfd_open, SYS_ptrace, SYS_process_vm_readv};
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned number : denied) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
         ::syscall(SYS_pidfd_getfd, 0, 0, 0) == -1 && errno == EPERM;
}

inline constexpr uid_t ordinary_user = 65534;

// Whether the process is an ordinary user's from now on: a superuser's becomes one without any privilege.
inline bool become_ordinary() {
  if (::geteuid() != 0) return true;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(ordinary_user, ordinary_user, ordinary_user) == 0 &&
         ::setresuid(ordinary_user, ordinary_user, ordinary_user) == 0 && ::setuid(0) != 0;
}

}  // namespace cuvmm::tests
