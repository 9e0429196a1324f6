#include "cuvmm/sharing/locality.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <utility>

#include "driver/interface.hpp"
#include "refusal.hpp"
#include "sharing/content.hpp"
#include "sharing/locality_fields.hpp"
#include "sharing/locality_refusal.hpp"

namespace cuvmm::sharing {

namespace {

std::string name_of_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// Read once: it stays as long as the process can. Where there was no descriptor for it, it is asked for again.
std::string boot_of_kernel() {
  static std::mutex mutex;
  static std::string id;
  const std::lock_guard lock(mutex);
  if (id.empty()) std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string place_of_shared_memory() {
  struct stat facts {};
  if (::stat("/dev/shm", &facts) != 0) return {};
  return fmt::format("{}:{}", facts.st_dev, facts.st_ino);
}

constexpr std::string_view real_machine = "real";

std::string words_for_machine(const Locality& locality) {
  if (locality.machine.empty()) return {};
  if (locality.machine == real_machine) return ", with a real driver";
  return fmt::format(", on node {} of the emulated machine {}", locality.node, locality.machine);
}

std::string words_for(const Locality& locality) {
  return fmt::format("host '{}' (boot id {}, shared memory {}{})", locality.host,
                     locality.boot_id.empty() ? "unknown" : locality.boot_id,
                     locality.shared_memory.empty() ? "unknown" : locality.shared_memory, words_for_machine(locality));
}

std::string_view rule_for(const Locality& one, const Locality& other) {
  if (!same_kernel(one, other)) return "descriptors reach processes of the same host only";
  if (!same_machine(one, other)) return "handles of one machine's memory mean nothing on another";
  if (!same_node(one, other)) return "descriptors of memory mean something on its own node only";
  return "descriptors reach processes of the same host only";
}

std::string way_out_for(const Locality& one, const Locality& other) {
  if (!same_machine(one, other))
    return "Give both processes one driver, and where that is emulated one machine: the same setting machine in "
           "CUVMM_EMULATOR, or one `cuvmm emulate`";
  if (!same_node(one, other))
    return "Share by fabric handles: create the memory with HandleType::fabric, which needs a common IMEX domain";
  return "Run both in one container, or give their containers one /dev/shm (--ipc)";
}

}  // namespace

Locality Locality::here() {
  return {name_of_host(), boot_of_kernel(), place_of_shared_memory()};
}

Locality Locality::of(const Driver& driver) {
  Locality locality = here();
  const auto place = driver.interface().emulated_place();
  locality.machine = place ? place->machine : real_machine;
  locality.node = place ? static_cast<std::uint32_t>(place->node) : 0;
  return locality;
}

Result<void> require_short_texts(std::string_view call, const Locality& locality) {
  const std::pair<std::string_view, const std::string&> texts[] = {{"host", locality.host},
                                                                   {"boot_id", locality.boot_id},
                                                                   {"shared_memory", locality.shared_memory},
                                                                   {"machine", locality.machine}};
  for (const auto& [name, text] : texts)
    if (text.size() > most_text_bytes)
      return invalid_use(call, fmt::format("locality.{} of {} bytes", name, text.size()),
                         fmt::format("Each text of a Locality has at most {} bytes", most_text_bytes),
                         "Take Locality::here(), or shorten the text");
  return {};
}

std::vector<std::byte> Locality::to_bytes() const {
  require_short_texts("Locality::to_bytes", *this).value();
  Writer writer;
  write(writer, *this);
  return writer.take();
}

void write(Writer& writer, const Locality& locality) {
  writer.text(locality.host).text(locality.boot_id).text(locality.shared_memory).text(locality.machine);
  writer.number(locality.node);
}

Locality read_locality(Reader& reader) {
  Locality locality;
  locality.host = reader.text(most_text_bytes);
  locality.boot_id = reader.text(most_text_bytes);
  locality.shared_memory = reader.text(most_text_bytes);
  locality.machine = reader.text(most_text_bytes);
  locality.node = reader.number<std::uint32_t>();
  return locality;
}

std::optional<Locality> Locality::from_bytes(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Locality locality = read_locality(reader);
  if (!reader.complete()) return std::nullopt;
  return locality;
}

bool same_kernel(const Locality& one, const Locality& other) noexcept {
  if (one.boot_id.empty() && other.boot_id.empty()) return one.host == other.host;
  return one.boot_id == other.boot_id;
}

bool same_machine(const Locality& one, const Locality& other) noexcept {
  return one.machine.empty() || other.machine.empty() || one.machine == other.machine;
}

bool same_node(const Locality& one, const Locality& other) noexcept {
  const bool known = !one.machine.empty() && !other.machine.empty();
  return same_kernel(one, other) && same_machine(one, other) && (!known || one.node == other.node);
}

bool same_host(const Locality& one, const Locality& other) noexcept {
  return same_node(one, other) && one.shared_memory == other.shared_memory;
}

Failure different_hosts(std::string_view call, std::string_view who, const Locality& one, std::string_view whom,
                        const Locality& other) {
  Failure failure;
  failure.kind = ErrorKind::not_supported;
  failure.call = call;
  failure.feature = "handles of memory between processes";
  failure.reason =
      fmt::format("{} is on {} and {} on {}; {}", who, words_for(one), whom, words_for(other), rule_for(one, other));
  failure.way_out = way_out_for(one, other);
  return failure;
}

void require_same_host(std::span<const Locality> ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    if (!same_host(ranks[0], ranks[rank]))
      raise(different_hosts("require_same_host", "Rank 0", ranks[0], fmt::format("rank {}", rank), ranks[rank]));
}

}  // namespace cuvmm::sharing
