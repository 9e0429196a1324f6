// map + grant + unmap of one allocation, by raw driver calls and through the library.
#include <cuvmm/cuvmm.hpp>
#include <memory>
#include <string>

#include "bench/reports.hpp"
#include "driver/call.hpp"

namespace cuvmm::bench {
namespace {

using driver::call;
using driver::EntryPoint;

struct Bed {
  Bed(const Driver& its_driver, std::size_t bytes)
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
    call<EntryPoint::cuMemMap>(calls, address, memory.size(), 0U, memory.memory().handle(), 0U);
    call<EntryPoint::cuMemSetAccess>(calls, address, memory.size(), &access, 1U);
    call<EntryPoint::cuMemUnmap>(calls, address, memory.size());
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

void compare(const Meter& meter, const ContestOptions& options, Report& report, const std::string& size,
             const std::string& library, const std::function<void()>& raw, const std::function<void()>& ours) {
  const std::string plain = size + ", raw calls at the addresses of " + library;
  const std::string with_library = size + ", " + library;
  Contest contest(meter);
  contest.add([&](Turn& turn) { turn.measure(plain, raw); });
  contest.add([&](Turn& turn) { turn.measure(with_library, ours); });
  for (Way& each : contest.run(options)) report.ways.push_back(std::move(each));
  report.ratios.push_back({with_library, plain, false, 1.02});
}

}  // namespace

Report report_mapping(const Meter& meter, const Settings& settings) {
  ContestOptions options =
      contest_options(settings, meter, {.on_gpu = {.rounds = 2000}, .on_emulator = {.rounds = 10}});
  options.warming_rounds = 1 + options.rounds / 10;
  Report report;
  report.title = "map + grant + unmap of one allocation";
  report.settings = {in_words(options)};
  for (const std::size_t bytes : {2_MiB, 1_GiB}) {
    Bed bed(meter.driver(), bytes);
    compare(
        meter, options, report, format_bytes(bytes), "Mapping", [&] { bed.raw(bed.reservation.address()); },
        [&] { bed.with_owners(); });
    compare(
        meter, options, report, format_bytes(bytes), "MappedRange", [&] { bed.raw(bed.range.address()); },
        [&] { bed.with_range(); });
  }
  return report;
}

}  // namespace cuvmm::bench
