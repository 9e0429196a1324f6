// Processes that do not keep to the protocol, and many of them.
#include <sys/resource.h>
#include <sys/un.h>

#include <memory>
#include <random>

#include "emulator/broker/packet.hpp"
#include "emulator/broker/protocol.hpp"
#include "machine.hpp"

namespace cuvmm::tests {
namespace {

using namespace emulator::broker;

FileDescriptor connected_to(const Machine& machine) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (machine.path() + "/socket").copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return socket;
}

void send_bytes(const FileDescriptor& socket, const std::vector<std::byte>& bytes, int descriptor = -1) {
  (void)send_packet(socket.get(), bytes, descriptor);
}

// The reply; nothing if the broker has closed the connection instead.
std::optional<Reply> reply_on(const FileDescriptor& socket) {
  while (true) {
    const Packet packet = receive_packet(socket.get());
    if (packet.fate == Packet::Fate::arrived) return decode_reply(packet.bytes);
    if (packet.fate != Packet::Fate::none_yet) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class Robustness : public testing::Test {
 protected:
  ~Robustness() override { EXPECT_EQ(witness_.free_bytes(), all_) << "the machine is as it was"; }

  FileDescriptor greeted() {
    FileDescriptor socket = connected_to(machine_);
    send_bytes(socket, encode(Request(Hello{0})));
    const auto reply = reply_on(socket);
    EXPECT_TRUE(reply && std::holds_alternative<Welcome>(*reply));
    return socket;
  }

  Machine machine_;
  Actor witness_{machine_};
  const std::uint64_t all_ = witness_.init().free_bytes();
};

TEST_F(Robustness, WhoSendsNonsenseIsPutOut) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const FileDescriptor socket = round % 2 == 0 ? connected_to(machine_) : greeted();
    std::vector<std::byte> bytes(random() % 200 + 1);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    send_bytes(socket, bytes, round % 3 == 0 ? socket.get() : -1);
    EXPECT_FALSE(reply_on(socket)) << round;
  }
}

TEST_F(Robustness, WhoSendsHalfAMessageIsPutOut) {
  const auto whole = encode(Request(Create{NodePlace(), chunk, Properties()}));
  for (std::size_t length = 1; length < whole.size(); ++length) {
    const FileDescriptor socket = greeted();
    send_bytes(socket, {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
    EXPECT_FALSE(reply_on(socket)) << length;
  }
  const FileDescriptor socket = greeted();
  send_bytes(socket, whole);
  const auto reply = reply_on(socket);
  EXPECT_TRUE(reply && std::holds_alternative<Memory>(*reply));
}

TEST_F(Robustness, WhoSendsTooMuchIsPutOut) {
  const FileDescriptor socket = greeted();
  send_bytes(socket, std::vector<std::byte>(most_message_bytes + 1));
  EXPECT_FALSE(reply_on(socket));
}

TEST_F(Robustness, WhoSaysHelloTwiceOrNotIsPutOut) {
  const FileDescriptor twice = greeted();
  send_bytes(twice, encode(Request(Hello{0})));
  EXPECT_FALSE(reply_on(twice));
  const FileDescriptor never = connected_to(machine_);
  send_bytes(never, encode(Request(AskUsage{NodePlace()})));
  EXPECT_FALSE(reply_on(never));
}

TEST_F(Robustness, WhoIsOfAnotherVersionIsAnsweredInThisOne) {
  const FileDescriptor socket = connected_to(machine_);
  auto bytes = encode(Request(Hello{0}));
  bytes[4] = std::byte{99};
  send_bytes(socket, bytes);
  const auto reply = reply_on(socket);
  EXPECT_TRUE(reply && std::holds_alternative<Refused>(*reply));
}

TEST_F(Robustness, WhoAsksForWhatIsNotItsOwnIsRefused) {
  const FileDescriptor owner = greeted(), thief = greeted();
  send_bytes(owner, encode(Request(Create{NodePlace(), chunk, Properties()})));
  const std::uint64_t id = std::get<Memory>(reply_on(owner).value()).allocation.id;
  const Request attempts[] = {GiveBack{id},
                              ExportDescriptor{{id}, true, 10},
                              ExportToken{TokenKind::fabric, id},
                              ExportDescriptor{{}, true, 10},
                              ImportToken{TokenKind::fabric, 12345, {}},
                              ImportToken{TokenKind::ipc, 12345, 1},
                              ExportPool{12345, NodePlace()},
                              ExportPool{0, NodePlace(7, emulator::model::Place::on_device(0))},
                              DropPool{12345},
                              ExportPoolRange{12345, {id}, 0, 1},
                              ImportPoolRange{12345, 1},
                              OpenPoolMemory{12345, 1, 0},
                              ImportPool{},
                              AskFile{NodePlace(7, emulator::model::Place::on_device(0))}};
  for (const Request& attempt : attempts) {
    send_bytes(thief, encode(attempt));
    const auto reply = reply_on(thief);
    ASSERT_TRUE(reply) << attempt.index();
    EXPECT_TRUE(std::holds_alternative<Refused>(*reply)) << attempt.index();
  }
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, chunk + 4096, ~std::uint64_t{0} - chunk + 1}) {
    send_bytes(thief, encode(Request(Create{NodePlace(), bytes, Properties()})));
    EXPECT_TRUE(std::holds_alternative<Refused>(reply_on(thief).value())) << bytes;
  }
  send_bytes(owner, encode(Request(GiveBack{id})));
  EXPECT_TRUE(std::holds_alternative<Done>(reply_on(owner).value()));
}

TEST_F(Robustness, WhoNeverReadsHindersNobody) {
  const FileDescriptor socket = greeted();
  const auto question = encode(Request(AskUsage{NodePlace()}));
  int sent = 0;
  bool put_out = false;
  for (; sent < 1'000'000 && !put_out; ++sent) {
    const int error = send_packet(socket.get(), question, -1);
    if (error == EAGAIN) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    put_out = error != 0 && error != EAGAIN;
  }
  EXPECT_TRUE(put_out) << "after " << sent << " questions";
}

TEST_F(Robustness, WhoConnectsAndSaysNothingHindersNobody) {
  std::vector<FileDescriptor> silent;
  for (int count = 0; count < 100; ++count) silent.push_back(connected_to(machine_));
  Actor other(machine_);
  EXPECT_EQ(other.init().free_bytes(), all_);
}

// With an odd number of descriptors and with an even one: a process takes two, and either may be the one that is
// missing.
class DescriptorLimit : public testing::TestWithParam<rlim_t> {};

TEST_P(DescriptorLimit, OfTheBrokerIsToldToWhoDoesNotFit) {
  const Machine machine;
  Actor witness(machine);
  const auto handle = witness.init().create(descriptors);
  const rlimit few{GetParam(), GetParam()};
  ASSERT_EQ(::prlimit(machine.broker(), RLIMIT_NOFILE, &few, nullptr), 0);
  std::vector<FileDescriptor> guests;
  std::size_t refused = 0;
  for (int count = 0; count < 100; ++count) {
    guests.push_back(connected_to(machine));
    ASSERT_TRUE(guests.back());
    send_bytes(guests.back(), encode(Request(Hello{0})));
    const auto reply = reply_on(guests.back());
    if (reply && std::holds_alternative<Welcome>(*reply)) continue;
    ++refused;
    EXPECT_TRUE(!reply || std::get<Refused>(*reply).why == Refusal::full);
  }
  EXPECT_GT(refused, 50U);
  EXPECT_LT(refused, 100U);
  EXPECT_EQ(witness.ask("export " + std::to_string(handle)).code, CUDA_ERROR_OPERATING_SYSTEM);
  guests.clear();
  EXPECT_EQ(witness.ask("export " + std::to_string(handle)).code, CUDA_SUCCESS);
  Actor next(machine);
  EXPECT_EQ(next.ask("init").code, CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(OddAndEven, DescriptorLimit, testing::Values(64, 65));

TEST(ManyProcesses, AreServedTogether) {
  const Machine machine;
  Actor witness(machine);
  const auto all = witness.init().free_bytes();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const std::size_t count = std::min<std::size_t>(2000, limit.rlim_cur / 3);
  std::vector<FileDescriptor> guests;
  for (std::size_t index = 0; index < count; ++index) {
    guests.push_back(connected_to(machine));
    send_bytes(guests.back(), encode(Request(Hello{0})));
    send_bytes(guests.back(), encode(Request(AskUsage{NodePlace()})));
  }
  for (const FileDescriptor& guest : guests) {
    EXPECT_TRUE(std::holds_alternative<Welcome>(reply_on(guest).value()));
    EXPECT_EQ(std::get<Usage>(reply_on(guest).value()).free, all);
  }
}

TEST(StoppedBroker, IsNotWaitedForForEver) {
  const Machine machine;
  Actor one(machine);
  one.init();
  const pid_t broker = machine.broker();
  ASSERT_EQ(::kill(broker, SIGSTOP), 0);
  one.tell("info");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ASSERT_EQ(::kill(broker, SIGCONT), 0);
  EXPECT_EQ(one.answer().code, CUDA_SUCCESS) << "what is late comes";
}

}  // namespace
}  // namespace cuvmm::tests
