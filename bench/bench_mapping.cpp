// What map + grant + unmap cost through the library, against the raw driver calls, in alternating pairs.
//
//   bench_mapping [--driver auto|cuda|emulated] [--pairs N]
//
// Times mean something on a GPU only; the ratio is what counts, with its 95 % confidence interval.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cuvmm/cuvmm.hpp>
#include <memory>
#include <string>

#include "chosen_driver.hpp"
#include "driver/call.hpp"
#include "driver/interface.hpp"
#include "paired.hpp"

namespace {

using namespace cuvmm;

void check(abi::CUresult result) {
  if (result != abi::CUDA_SUCCESS)
    throw std::runtime_error(fmt::format("the driver answered {}", static_cast<int>(result)));
}

struct Bed {
  explicit Bed(const Driver& its_driver, std::size_t bytes)
      : driver(its_driver),
        source(PhysicalSource::create(driver)),
        memory(source->acquire({}, bytes)),
        reservation(AddressReservation::create(driver, bytes)),
        range([&] {
          MappedRangeOptions options;
          options.capacity = bytes;
          options.source = source;
          return MappedRange::create(driver, options);
        }()) {}

  // At the same addresses as the library's way, since what the driver has to do depends on them.
  void raw(DeviceAddress at) const {
    driver::Interface& calls = driver.interface();
    const abi::CUmemAccessDesc access{.location = {abi::CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                      .flags = abi::CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const abi::CUdeviceptr address = at.value;
    check(calls.cuMemMap(address, memory.size(), 0, memory.memory().handle(), 0));
    check(calls.cuMemSetAccess(address, memory.size(), &access, 1));
    check(calls.cuMemUnmap(address, memory.size()));
  }
  void with_owners() const {
    const auto mapping = Mapping::create(reservation, 0, memory.memory());
    grant(mapping, Location::device(DeviceOrdinal(0)), AccessRights::read_write);
  }
  void with_range() {
    range.map(0, memory);
    range.unmap(0, memory.size());
  }

  Driver driver;
  std::shared_ptr<PhysicalSource> source;
  SharedPhysicalMemory memory;
  AddressReservation reservation;
  MappedRange range;
};

void run(const Driver& driver, int pairs) {
  fmt::print("{}\n{} alternating pairs of raw calls and library calls: map + grant + unmap of one allocation\n\n",
             driver.description(), pairs);
  fmt::print("{:>8}  {:<12}  {:>10}  {:>12}  {:<30}\n", "size", "library", "raw, us", "library, us",
             "library / raw (95 % interval)");
  for (const std::size_t bytes : {2_MiB, 1_GiB}) {
    // As in programs that use the memory. Without a context on the device the driver sets up and takes down for each
    // call what it needs.
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    Bed bed(driver, bytes);
    const auto print = [&](const char* name, const bench::Comparison& seen) {
      fmt::print("{:>8}  {:<12}  {:>10.2f}  {:>12.2f}  {:.4f} ({:.4f} to {:.4f})\n", format_bytes(bytes), name,
                 seen.first_us.value, seen.second_us.value, seen.ratio.value, seen.ratio.low, seen.ratio.high);
    };
    print("Mapping", bench::compare(
                         pairs, [&] { bed.raw(bed.reservation.address()); }, [&] { bed.with_owners(); }));
    print("MappedRange", bench::compare(
                             pairs, [&] { bed.raw(bed.range.address()); }, [&] { bed.with_range(); }));
  }
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("map + grant + unmap through the library against raw driver calls");
  app.allow_extras();  // the other benchmarks' options
  std::string name = "auto";
  int pairs = 2000;
  app.add_option("--driver", name, "auto, cuda or emulated")->check(CLI::IsMember({"auto", "cuda", "emulated"}));
  app.add_option("--pairs", pairs, "how many")->check(CLI::Range(10, 1'000'000));
  CLI11_PARSE(app, count, arguments);
  try {
    run(bench::chosen_driver(name), pairs);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_mapping: {}\n", error.what());
    return 1;
  }
  return 0;
}
