// A test's environment, in which nothing turns multicast off.
#pragma once

#include "unit/environment.hpp"

namespace cuvmm::team::test {

struct NoSwitches {
  cuvmm::test::EnvironmentVariable own{"CUVMM_MULTICAST", nullptr};
  cuvmm::test::EnvironmentVariable nccl{"NCCL_NVLS_ENABLE", nullptr};
  cuvmm::test::EnvironmentVariable torch{"TORCH_SYMM_MEM_DISABLE_MULTICAST", nullptr};
  cuvmm::test::EnvironmentVariable nvshmem{"NVSHMEM_DISABLE_NVLS", nullptr};
};

}  // namespace cuvmm::team::test
