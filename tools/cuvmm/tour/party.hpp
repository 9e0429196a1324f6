// Other processes that take part in a stop: they export, import and look at memory, as they are told.
//
// Each is this program, started once more with a hidden command, and listens at a connection that it inherits. What
// goes to and fro are texts, and handles of memory as the library sends them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "command/child_process.hpp"
#include "command/driver_choice.hpp"
#include "cuvmm/sharing/descriptor_socket.hpp"
#include "cuvmm/sharing/handle_exchange.hpp"
#include "cuvmm/team/socket_bootstrap.hpp"
#include "driver/abi.hpp"
#include "tour/rank_work.hpp"

namespace CLI {
class App;
}

namespace cuvmm::tour {

struct PartyOptions {
  int device = 0;                                                // that it works with
  int node = 0;                                                  // of the emulated machine, counted from the tour's
  std::chrono::milliseconds patience = std::chrono::minutes(2);  // for each answer
};

// One of them. Every function waits for its answer, at most as long as the options say, and throws cuvmm::Error as it
// fails there, and std::runtime_error, which names the process and how it ended, if there is no answer. Not copied,
// since the process ends with it. Thread-safety: for one thread.
class Party {
 public:
  // Starts the process. `name` says in messages who it is: "the importer".
  Party(const command::DriverPlace& place, std::string name, const PartyOptions& options);
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;
  Party(Party&&) = delete;
  Party& operator=(Party&&) = delete;
  ~Party() = default;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] pid_t process() const noexcept { return child_->process(); }

  // Creates memory on its device, maps it, and puts the file's first bytes there (sample_of_input).
  void make(const std::string& file, std::size_t bytes, HandleType type);
  // The handle of what it made.
  [[nodiscard]] std::vector<sharing::HandleOfMemory> give();

  // Imports each handle, and maps each at addresses of its own, granted to its device.
  void take(std::span<const sharing::HandleOfMemory> handles);
  // What a driver call answers there that imports from a descriptor by its number alone.
  [[nodiscard]] abi::CUresult import_number(int number);

  // What a kernel of its device sees in the memory with that index, of those that it took or made: from its beginning.
  [[nodiscard]] std::uint64_t checksum(std::size_t index, std::uint64_t bytes, std::uint64_t first_word);
  // Copies a piece of the file to that memory's beginning.
  void store(std::size_t index, const std::string& file, std::uint64_t offset, std::uint64_t bytes);
  // Takes part in a team whose other ranks are told the same at the same time: reduce_as_rank. `bytes` as there.
  [[nodiscard]] RankSums reduce(const team::SocketTeam& team, const std::string& file, std::size_t bytes);
  // Gives back all memory.
  void drop();

  // Ends the process at once, as if it had crashed.
  void kill() noexcept { child_->kill(); }
  // Lets it end. Throws std::runtime_error if it does not end well.
  void end();

 private:
  struct Started {
    sharing::DescriptorSocket socket;
    std::unique_ptr<command::ChildProcess> child;
  };
  static Started start(const command::DriverPlace& place, const PartyOptions& options);
  Party(Started started, std::string name, const PartyOptions& options);

  std::string ask(const std::string& request);
  [[noreturn]] void raise_silence(const Failure& why, const std::string& task);

  std::string name_;
  std::chrono::milliseconds patience_;
  sharing::DescriptorSocket socket_;
  std::unique_ptr<command::ChildProcess> child_;  // ends before the connection does
};

// The other side.
struct PartyCommand {
  command::DriverPlace place{};
  PartyOptions options{};
};

// Adds the hidden command. Once it is parsed, run_party works until the connection ends, and returns the exit status.
CLI::App* add_party_command(CLI::App& application, PartyCommand& party);
[[nodiscard]] int run_party(const PartyCommand& party);

inline constexpr const char* party_command = "tour-party";

}  // namespace cuvmm::tour
