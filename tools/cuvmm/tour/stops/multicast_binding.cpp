// 4.16.4.3: memory is bound to a multicast object, by its handle and by its address, at offsets, and unbound.
#include <fmt/core.h>

#include <algorithm>

#include "cuvmm/physical_memory.hpp"
#include "driver/convert.hpp"
#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"
#include "tour/stops/multicast.hpp"

namespace cuvmm::tour {
namespace {

constexpr std::size_t ranks = 2;

class BindingTour {
 public:
  explicit BindingTour(Visit& visit)
      : visit_(visit),
        driver_(visit.driver.interface()),
        devices_(visit),
        half_(half_of_multicast_window(visit, devices_)),
        object_(MulticastObject::create(visit.driver, {.devices = ranks, .bytes = 2 * half_})) {
    for (std::size_t rank = 0; rank < ranks; ++rank) object_.add_device(devices_[rank].device());
  }

  // Each time one thing is wrong; what is right is bound afterwards.
  void refusals() {
    const MappedRange right = memory_of(devices_[0], half_);
    const unsigned long long memory = right.memory_at(0).memory().handle();
    refuse_bind(0, memory, 0, half_ + 1, "binding no whole units");
    refuse_bind(half_ / 2 + 1, memory, 0, half_, "binding at no whole unit of the object");
    refuse_bind(0, memory, 0, 2 * half_, "binding more than there is of the memory");
    refuse_bind(2 * half_, memory, 0, half_, "binding behind the object's end");
    refuse_bind(0, object_.handle(), 0, half_, "binding an object, which is no memory,");
    refuse_host_memory();
    refuse_device_of_no_team();
    require_accepted(visit_.checks, bind(0, memory, 0, half_), "binding memory of a device that was added");
    refuse_bind(0, memory, 0, half_, "binding there once more");
    require_refused(visit_.checks, unbind(2 * half_), {abi::CUDA_ERROR_INVALID_VALUE},
                    "unbinding another size than was bound");
    require_accepted(visit_.checks, unbind(half_), "unbinding what was bound");
    require_refused(visit_.checks, unbind(half_), {abi::CUDA_ERROR_INVALID_VALUE}, "unbinding it twice");
  }

  // To an object that other processes may have, only memory is bound that they could have.
  void what_is_shared() {
    if (!devices_.root().device().supports_handle_type(HandleType::posix_file_descriptor)) return;
    const auto types = HandleTypes(HandleType::posix_file_descriptor);
    auto shared = MulticastObject::create(visit_.driver, {.devices = ranks, .bytes = half_, .handle_types = types});
    for (std::size_t rank = 0; rank < ranks; ++rank) shared.add_device(devices_[rank].device());
    {
      const MappedRange plain = memory_of(devices_[0], half_);
      require_refused(visit_.checks,
                      driver_.cuMulticastBindMem(shared.handle(), 0, plain.memory_at(0).memory().handle(), 0, half_, 0),
                      {abi::CUDA_ERROR_INVALID_VALUE},
                      "binding memory without handle types to an object that can be exported");
    }
    const MappedRange exportable = memory_of(devices_[0], half_, types);
    require_accepted(visit_.checks, "binding memory that can be exported, too,",
                     [&] { shared.bind(0, exportable.memory_at(0), 0, half_); });
  }

  // Two parts of one memory of each device, the other way round: what lies first in the object is the memory's second
  // half.
  void by_handle_at_offsets() {
    std::vector<MappedRange> both;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      both.push_back(memory_of(devices_[rank], 2 * half_));
      object_.bind(0, both[rank].memory_at(0), half_, half_);
      object_.bind(half_, both[rank].memory_at(0), 0, half_);
    }
    std::vector<Halves> where;
    for (const MappedRange& each : both) where.push_back({(each.address() + half_).value, each.address().value});
    {
      const MulticastAddresses addresses(object_, team_);
      refuse_unbinding_while_mapped();
      constexpr auto what = "two parts of one memory, bound by its handle the other way round";
      require_halves(addresses, where, what);
      move_input(addresses, where, what);
    }
    unbind_all();
    visit_.shown = "parts of one memory by handle";
  }

  // Two memories of each device, one by its handle and one by its address; then exchanged.
  void by_address_and_anew() {
    std::vector<MappedRange> first, second;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      first.push_back(memory_of(devices_[rank], half_));
      second.push_back(memory_of(devices_[rank], half_));
      object_.bind(0, first[rank].memory_at(0), 0, half_);
      object_.bind_address(half_, second[rank].address(), half_);
    }
    std::vector<Halves> where;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      where.push_back({first[rank].address().value, second[rank].address().value});
    require_mapped(where, "memory by its handle, and behind it other memory by its address");
    unbind_all();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      object_.bind_address(0, second[rank].address(), half_);
      object_.bind(half_, first[rank].memory_at(0), 0, half_);
      std::swap(where[rank].low, where[rank].high);
    }
    require_mapped(where, "the same memories unbound, and bound in the place of each other");
    unbind_all();
    visit_.shown += "; several memories, by handle and by address; unbound and bound anew";
  }

  void finish() const {
    for (std::size_t rank = 0; rank < ranks; ++rank) devices_[rank].gpu().finish_work();
  }

 private:
  // Where the object's halves lie in a rank's own memory.
  struct Halves {
    abi::CUdeviceptr low;
    abi::CUdeviceptr high;
  };

  [[nodiscard]] abi::CUresult bind(std::size_t offset, unsigned long long memory, std::size_t memory_offset,
                                   std::size_t bytes) const {
    return driver_.cuMulticastBindMem(object_.handle(), offset, memory, memory_offset, bytes, 0);
  }
  [[nodiscard]] abi::CUresult unbind(std::size_t bytes) const {
    return driver_.cuMulticastUnbind(object_.handle(), devices_[0].device().handle(), 0, bytes);
  }

  void refuse_bind(std::size_t offset, unsigned long long memory, std::size_t memory_offset, std::size_t bytes,
                   const std::string& what) {
    require_refused(visit_.checks, bind(offset, memory, memory_offset, bytes), {abi::CUDA_ERROR_INVALID_VALUE}, what);
  }

  void refuse_host_memory() {
    const MemoryProperties properties{.location = Location::host_numa(0)};
    const std::size_t unit = PhysicalMemory::granularity(visit_.driver, properties);
    const auto memory = PhysicalMemory::try_create(visit_.driver, properties, (half_ + unit - 1) / unit * unit);
    if (!memory) return visit_.checks.leave_out("binding memory of the host", memory.failure().message());
    refuse_bind(0, memory->handle(), 0, half_, "binding memory of the host");
  }

  void refuse_device_of_no_team() {
    if (devices_.size() == ranks)
      return visit_.checks.leave_out("binding memory of a device that was not added", "no more devices take part");
    const MappedRange other = memory_of(devices_[ranks], half_);
    require_refused(visit_.checks, bind(0, other.memory_at(0).memory().handle(), 0, half_),
                    {abi::CUDA_ERROR_INVALID_DEVICE}, "binding memory of a device that was not added");
  }

  void refuse_unbinding_while_mapped() {
    const auto tried = object_.try_unbind(devices_[0].device(), 0, half_);
    visit_.checks.require(!tried && tried.failure().rule_ids.find("MULTICAST-UNBIND-AFTER-UNMAP") != std::string::npos,
                          "the library does not unbind what is mapped, and names the rule",
                          tried ? "it unbound it" : tried.failure().message());
  }

  void unbind_all() {
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (const std::size_t offset : {std::size_t{0}, half_}) object_.unbind(devices_[rank].device(), offset, half_);
  }

  void require_mapped(const std::vector<Halves>& where, const std::string& what) {
    const MulticastAddresses addresses(object_, team_);
    require_halves(addresses, where, what);
    finish();
  }

  // Stores bytes around the border in the object's middle, and looks for them in each rank's memory on either side.
  void require_halves(const MulticastAddresses& addresses, const std::vector<Halves>& where, const std::string& what) {
    constexpr std::size_t each_side = 32 << 10;
    const std::vector<std::byte> sample = sample_of_input(visit_.input, 2 * each_side);
    const std::span<const std::byte> all(sample);
    ContentChecksum low, high;
    low.add(all.first(each_side));
    high.add(all.subspan(each_side));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      require_fill(rank, where[rank].low + half_ - each_side, each_side);
      require_fill(rank, where[rank].high, each_side);
    }
    store(addresses, half_ - each_side, all);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      Gpu& gpu = devices_[rank].gpu();
      const bool is_low = gpu.checksum(where[rank].low + half_ - each_side, each_side, 0) == low.value();
      const bool is_high = gpu.checksum(where[rank].high, each_side, 0) == high.value();
      visit_.checks.require(is_low && is_high,
                            fmt::format("{}: what is stored is where it was bound, on device {}", what, gpu.ordinal()),
                            fmt::format("it is not in the {} half", is_low ? "second" : "first"));
    }
  }

  void move_input(const MulticastAddresses& addresses, const std::vector<Halves>& where, const std::string& what) {
    std::vector<std::uint64_t> seen(ranks, 0);
    for_each_piece(visit_, 2 * half_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      const std::uint64_t first_word = offset / gpu::checksum_word_bytes;
      const std::size_t low = std::min(piece.size(), half_);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        require_fill(rank, where[rank].low, low);
        require_fill(rank, where[rank].high, piece.size() - low);
      }
      store(addresses, 0, piece);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        Gpu& gpu = devices_[rank].gpu();
        seen[rank] += gpu.checksum(where[rank].low, low, first_word);
        seen[rank] += gpu.checksum(where[rank].high, piece.size() - low, first_word + half_ / gpu::checksum_word_bytes);
      }
    });
    for (std::size_t rank = 0; rank < ranks; ++rank)
      require_checksum(visit_, seen[rank],
                       fmt::format("{}: a kernel of device {} sees the input", what, devices_[rank].gpu().ordinal()));
  }

  void require_fill(std::size_t rank, abi::CUdeviceptr address, std::size_t bytes) {
    const abi::CUresult filled = devices_[rank].gpu().try_fill(address, bytes, rank);
    if (filled != abi::CUDA_SUCCESS)
      require_accepted(visit_.checks, filled, "a kernel's store to memory that is bound");
  }

  void store(const MulticastAddresses& addresses, std::size_t offset, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    std::copy(bytes.begin(), bytes.end(), host().begin());
    const std::uint64_t words = words_of(bytes.size());
    devices_.root().run(MultimemStore{addresses.at(offset), host_->address(), words}, words);
  }

  // Memory of the host for what is stored, made when it is first needed.
  [[nodiscard]] std::span<std::byte> host() {
    devices_.root().gpu().make_current();
    if (!host_) host_.emplace(visit_.driver, 2 * half_);
    return host_->bytes();
  }

  Visit& visit_;
  driver::Interface& driver_;
  TeamDevices devices_;
  std::size_t half_;
  MulticastObject object_;
  std::vector<TeamDevice*> team_{&devices_[0], &devices_[1]};
  std::optional<ReachableHostMemory> host_;
};

void visit_multicast_binding(Visit& visit) {
  BindingTour tour(visit);
  tour.refusals();
  tour.what_is_shared();
  tour.by_handle_at_offsets();
  tour.by_address_and_anew();
}

}  // namespace

Stop multicast_binding_stop() {
  return {"4.16.4.3", "Binding", "memory bound to a multicast object, by handle and by address, and unbound",
          visit_multicast_binding};
}

}  // namespace cuvmm::tour
