// What attaching to a published range costs, against raw import + map + grant of the same chunks, in alternating pairs.
//
//   bench_attach [--driver auto|cuda|emulated] [--mib N] [--chunk-mib N] [--pairs N]
//
// The range is exported when it is published, contexts are made: what is measured is the attacher's side, from the
// connection to the last grant, and the time to undo it in both ways. Times mean something on a GPU only; the ratio is
// what counts, with its 95 % confidence interval. The first grant to another device is reported apart, where there is
// one.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cuvmm/cuvmm.hpp>
#include <cuvmm/sharing/sharing.hpp>
#include <string>
#include <vector>

#include "chosen_driver.hpp"
#include "driver/call.hpp"
#include "driver/interface.hpp"
#include "paired.hpp"

namespace {

using namespace cuvmm;
using namespace std::chrono_literals;

sharing::Deadline soon() {
  return sharing::Deadline::in(120s);
}

void check(abi::CUresult result) {
  if (result != abi::CUDA_SUCCESS)
    throw std::runtime_error(fmt::format("the driver answered {}", static_cast<int>(result)));
}

// Imports, maps and grants what is exported, in one reservation, and takes it back: what nobody can do without.
class RawImport {
 public:
  RawImport(const Driver& driver, const MappedRange& range) : driver_(driver) {
    for (const ChunkInfo& each : range.chunks()) {
      handles_.push_back(sharing::ShareableHandle::export_from(range.memory_at(each.offset).memory(),
                                                               HandleType::posix_file_descriptor));
      sizes_.push_back(each.bytes);
      total_ += each.bytes;
    }
  }
  void round() const {
    driver::Interface& calls = driver_.interface();
    abi::CUdeviceptr address = 0;
    check(calls.cuMemAddressReserve(&address, total_, 0, 0, 0));
    std::size_t offset = 0;
    for (std::size_t index = 0; index < handles_.size(); offset += sizes_[index++]) {
      abi::CUmemGenericAllocationHandle handle = 0;
      void* const descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(handles_[index].descriptor()));
      check(calls.cuMemImportFromShareableHandle(&handle, descriptor, abi::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
      check(calls.cuMemMap(address + offset, sizes_[index], 0, handle, 0));
      check(calls.cuMemRelease(handle));
    }
    const abi::CUmemAccessDesc access{.location = {abi::CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                      .flags = abi::CU_MEM_ACCESS_FLAGS_PROT_READ};
    check(calls.cuMemSetAccess(address, total_, &access, 1));
    check(calls.cuMemUnmap(address, total_));
    check(calls.cuMemAddressFree(address, total_));
  }

 private:
  Driver driver_;
  std::vector<sharing::ShareableHandle> handles_;
  std::vector<std::size_t> sizes_;
  std::size_t total_ = 0;
};

void run(const Driver& driver, std::size_t bytes, std::size_t chunk, int pairs) {
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  auto range = MappedRange::create(driver, {.capacity = bytes,
                                            .memory = {.handle_types = HandleType::posix_file_descriptor},
                                            .chunks = ChunkPolicy::fixed(chunk)});
  range.append(bytes);
  const auto address = sharing::SocketAddress::abstract(fmt::format("cuvmm-bench-attach-{}", ::getpid()));
  auto publisher = sharing::RangePublisher::listen(address, {}, soon());
  const auto published = publisher.publish("range", range);
  const auto attach = [&](const sharing::AttachOptions& options) {
    return sharing::AttachedRange::attach(driver, address, "range", options, soon());
  };
  fmt::print("{}\n{} in {} chunks, {} alternating pairs of raw calls and attaching\n\n", driver.description(),
             format_bytes(bytes), range.chunks().size(), pairs);
  if (driver.device_count() > 1)
    fmt::print("the first attach to device 1: {:.2f} ms\n",
               bench::milliseconds([&] { static_cast<void>(attach({.device = DeviceOrdinal(1)})); }));
  const RawImport raw(driver, range);
  const auto whole = bench::compare(
      pairs, [&] { raw.round(); }, [&] { attach({}).detach(); });
  fmt::print("attach and detach: raw {:.1f} us, library {:.1f} us, library / raw {:.4f} ({:.4f} to {:.4f})\n",
             whole.first_us.value, whole.second_us.value, whole.ratio.value, whole.ratio.low, whole.ratio.high);
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("attaching to a published range against raw import + map + grant");
  app.allow_extras();  // the other benchmarks' options
  std::string name = "auto";
  std::size_t mib = 0;
  std::size_t chunk_mib = 1024;
  int pairs = 100;
  app.add_option("--driver", name, "auto, cuda or emulated")->check(CLI::IsMember({"auto", "cuda", "emulated"}));
  app.add_option("--mib", mib, "size of the range; 16384 on a GPU, 256 on the emulated driver unless given");
  app.add_option("--chunk-mib", chunk_mib, "size of its chunks")->check(CLI::Range(2, 1 << 20));
  app.add_option("--pairs", pairs, "how many")->check(CLI::Range(10, 1'000'000));
  CLI11_PARSE(app, count, arguments);
  try {
    const Driver driver = bench::chosen_driver(name);
    if (mib == 0) mib = driver.is_emulated() ? 256 : 16'384;
    run(driver, mib << 20, chunk_mib << 20, pairs);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_attach: {}\n", error.what());
    return 1;
  }
  return 0;
}
