#include "tour/stops/last_user.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "tour/content_checksum.hpp"
#include "tour/party.hpp"

namespace cuvmm::tour {
namespace {

constexpr auto statement = "memory of several processes goes with its last user, in every order";

class LastUser {
 public:
  LastUser(Visit& visit, Gpu& gpu)
      : visit_(visit),
        gpu_(gpu),
        // A driver takes memory for page tables as well, as much as a granule at a time: two can be told from that.
        bytes_(2 * gpu.device().granularity()),
        exporter_(visit.place, "the exporter", {.device = gpu.ordinal()}),
        first_(visit.place, "the first importer", {.device = gpu.ordinal()}),
        second_(visit.place, "the second importer", {.device = gpu.ordinal()}) {
    ContentChecksum checksum;
    checksum.add(sample_of_input(visit.input, bytes_));
    expected_ = checksum.value();
  }

  void in_every_order() {
    std::array<Party*, 3> order{&exporter_, &first_, &second_};
    std::sort(order.begin(), order.end());
    do {
      share();
      give_back(order);
    } while (std::next_permutation(order.begin(), order.end()));
  }

  // Nobody gives anything back for it; the system does.
  void the_exporter_is_killed() {
    share();
    exporter_.kill();
    require_bytes(first_, "the exporter was killed");
    require_bytes(second_, "the exporter was killed");
    first_.drop();
    require_bytes(second_, "the exporter was killed and the other importer has given it back");
    require_given_back(second_, "after the exporter was killed");
  }

  void end() {
    first_.end();
    second_.end();
  }

 private:
  void share() {
    exporter_.make(visit_.input.path(), bytes_, HandleType::posix_file_descriptor);
    const auto handles = exporter_.give();
    first_.take(handles);
    second_.take(handles);
  }

  void give_back(const std::array<Party*, 3>& order) {
    const std::string names = fmt::format("{}, {}, {}", order[0]->name(), order[1]->name(), order[2]->name());
    for (std::size_t gone = 0; gone < 2; ++gone) {
      const std::uint64_t before = gpu_.free_memory();
      order[gone]->drop();
      const std::uint64_t after = gpu_.free_memory();
      visit_.checks.require(
          after < before + bytes_,
          fmt::format("{}: memory stays when the {} of them has given it back", names, gone == 0 ? "first" : "second"),
          fmt::format("{} bytes were free before, {} after", before, after));
      for (std::size_t left = gone + 1; left < 3; ++left)
        require_bytes(*order[left], order[gone]->name() + " has given it back");
    }
    require_given_back(*order[2], names);
  }

  void require_bytes(Party& party, const std::string& when) {
    const std::uint64_t seen = party.checksum(0, bytes_, 0);
    visit_.checks.require(seen == expected_, fmt::format("when {}, {} still sees the bytes", when, party.name()),
                          fmt::format("their checksum is {:016x}", seen));
  }

  void require_given_back(Party& last, const std::string& what) {
    const std::uint64_t before = gpu_.free_memory();
    last.drop();
    require_comes_back(visit_, gpu_, before, bytes_,
                       fmt::format("{}: with {} the memory comes back", what, last.name()));
  }

  Visit& visit_;
  Gpu& gpu_;
  std::size_t bytes_;
  std::uint64_t expected_ = 0;
  Party exporter_;
  Party first_;
  Party second_;
};

// Why it cannot be shown here; empty if it can.
std::string why_not(const Visit& visit, const Gpu& gpu) {
  constexpr int other_processes = 3;
  if (!gpu.device().supports_handle_type(HandleType::posix_file_descriptor)) return "the device has no descriptors";
  try {
    require_other_processes(visit, gpu, other_processes);
    return {};
  } catch (const Unavailable& why) {
    return why.what();
  }
}

}  // namespace

void show_last_user(Visit& visit, Gpu& gpu) {
  if (const std::string why = why_not(visit, gpu); !why.empty()) {
    visit.checks.leave_out(statement, why);
    visit.shown += "; several processes unavailable: " + why;
    return;
  }
  LastUser users(visit, gpu);
  users.in_every_order();
  users.the_exporter_is_killed();
  users.end();
  visit.shown += "; memory of three processes goes with the last of them";
}

}  // namespace cuvmm::tour
