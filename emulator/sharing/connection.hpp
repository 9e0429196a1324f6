// A process's connection to the broker of its machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "emulator/broker/packet.hpp"
#include "emulator/broker/protocol.hpp"
#include "emulator/memory/file_descriptor.hpp"
#include "emulator/sharing/closed_in_children.hpp"

namespace cuvmm::emulator::sharing {

// Asks one thing at a time. Not thread-safe.
class Connection {
 public:
  // `machine` is what the machine is called in messages. A reply that does not come within `patience` does not come.
  Connection(memory::FileDescriptor socket, std::string machine, std::chrono::milliseconds patience)
      : socket_(std::move(socket)), machine_(std::move(machine)), patience_(patience) {}

  // Sends the request, with the descriptor unless that is negative, and waits for the reply. What comes beside that is
  // put into `received`, where that is given. Throws std::system_error once the broker is lost, the first time after a
  // line on standard error, and at once (EPROTO) where the broker is of another version.
  [[nodiscard]] broker::Reply ask(const broker::Request& request, int descriptor = -1,
                                  memory::FileDescriptor* received = nullptr);

 private:
  [[noreturn]] void lose(const std::string& why);
  [[noreturn]] void refuse(std::uint16_t version);
  void cut() noexcept;
  broker::Reply reply_in(broker::Packet& packet, memory::FileDescriptor* received);
  void wait_for(short events);

  ClosedInChildren socket_;
  const std::string machine_;
  const std::chrono::milliseconds patience_;
  bool lost_ = false;
};

}  // namespace cuvmm::emulator::sharing
