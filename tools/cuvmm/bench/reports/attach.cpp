// Attaching to a published range, against raw import + map + grant of the same chunks. The range is exported when it is
// published, and contexts are made: what is measured is the attacher's side, from the connection to the last grant, and
// the time to undo it in both ways.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cuvmm/cuvmm.hpp>
#include <cuvmm/sharing/sharing.hpp>
#include <vector>

#include "bench/reports.hpp"
#include "driver/call.hpp"

namespace cuvmm::bench {
namespace {

using namespace std::chrono_literals;
using driver::call;
using driver::EntryPoint;

sharing::Deadline soon() {
  return sharing::Deadline::in(120s);
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
    call<EntryPoint::cuMemAddressReserve>(calls, &address, total_, 0U, 0U, 0U);
    std::size_t offset = 0;
    for (std::size_t index = 0; index < handles_.size(); offset += sizes_[index++]) {
      abi::CUmemGenericAllocationHandle handle = 0;
      void* const descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(handles_[index].descriptor()));
      call<EntryPoint::cuMemImportFromShareableHandle>(calls, &handle, descriptor,
                                                       abi::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      call<EntryPoint::cuMemMap>(calls, address + offset, sizes_[index], 0U, handle, 0U);
      call<EntryPoint::cuMemRelease>(calls, handle);
    }
    const abi::CUmemAccessDesc access{.location = {abi::CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                      .flags = abi::CU_MEM_ACCESS_FLAGS_PROT_READ};
    call<EntryPoint::cuMemSetAccess>(calls, address, total_, &access, 1U);
    call<EntryPoint::cuMemUnmap>(calls, address, total_);
    call<EntryPoint::cuMemAddressFree>(calls, address, total_);
  }

 private:
  Driver driver_;
  std::vector<sharing::ShareableHandle> handles_;
  std::vector<std::size_t> sizes_;
  std::size_t total_ = 0;
};

}  // namespace

Report report_attach(const Meter& meter, const Settings& settings) {
  const Driver& driver = meter.driver();
  const std::size_t bytes = bytes_of(settings, meter, 16_GiB, 16_MiB);
  const std::size_t chunk = settings.chunk_bytes.value_or(meter.counts() ? 2_MiB : 1_GiB);
  ContestOptions options = contest_options(settings, meter, {.on_gpu = {.rounds = 100}, .on_emulator = {.rounds = 10}});
  options.warming_rounds = 1 + options.rounds / 10;
  auto range = MappedRange::create(driver, {.capacity = bytes,
                                            .memory = {.handle_types = HandleType::posix_file_descriptor},
                                            .chunks = ChunkPolicy::fixed(chunk)});
  range.append(bytes);
  const auto address = sharing::SocketAddress::abstract(fmt::format("cuvmm-bench-attach-{}", ::getpid()));
  auto publisher = sharing::RangePublisher::listen(address, {}, soon());
  const auto published = publisher.publish("range", range);
  const auto attach = [&](const sharing::AttachOptions& attaching) {
    return sharing::AttachedRange::attach(driver, address, "range", attaching, soon());
  };
  Report report;
  report.title = fmt::format("{} in {} chunks, attached and detached", format_bytes(bytes), range.chunks().size());
  report.settings = {in_words(options)};
  if (driver.device_count() > 1) {
    const Cost first = meter.measure([&] { static_cast<void>(attach({.device = DeviceOrdinal(1)})); });
    report.notes.push_back(fmt::format("the first attach to device 1: {:.2f} ms", first.milliseconds));
  }
  const RawImport raw(driver, range);
  Contest contest(meter);
  contest.add([&](Turn& turn) { turn.measure("raw calls", [&] { raw.round(); }); });
  contest.add([&](Turn& turn) { turn.measure("AttachedRange", [&] { attach({}).detach(); }); });
  report.ways = contest.run(options);
  report.ratios = {{"AttachedRange", "raw calls", false, 1.1}};
  report.limits = {{"AttachedRange", 5.0}};
  return report;
}

}  // namespace cuvmm::bench
