// Kernels of one process on a range of another one, as tests/gpu has them on GPUs.
#include "kernels_on_shared_range.hpp"
#include "machine.hpp"

namespace cuvmm::tests {
namespace {

class RangeKernels : public testing::TestWithParam<int> {};

TEST_P(RangeKernels, ReadWhatIsPublishedAndFaultWhereTheyMayNotStore) {
  const Machine machine("memory=2GiB,devices=" + std::to_string(GetParam()));
  const std::string settings = machine.settings();
  const auto address = sharing::SocketAddress::at_path(machine.scratch("published") + "/one");
  KernelsOnSharedRange parties(
      [&] {
        ::setenv("CUVMM_EMULATOR", settings.c_str(), 1);
        return Driver::emulated();
      },
      address);
  parties.run();
  std::filesystem::remove(address.name());  // of the publisher that was killed
}

INSTANTIATE_TEST_SUITE_P(OnOneDeviceAndOnTwo, RangeKernels, testing::Values(1, 2));

}  // namespace
}  // namespace cuvmm::tests
