// A libFuzzer target: everything that reads what another process sent.
#include "sharing/read_everything.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (!cuvmm::sharing::test::read_everything_in(std::as_bytes(std::span(data, size)))) __builtin_trap();
  return 0;
}
