#include "cuvmm/sharing/descriptor_socket.hpp"

#include <csignal>
#include <cstring>
#include <functional>
#include <thread>

#include "cuvmm/sharing/handle_exchange.hpp"
#include "open_descriptors.hpp"
#include "range/range_machine.hpp"
#include "raw_packets.hpp"
#include "sharing/content.hpp"

namespace cuvmm::sharing {
namespace {

using namespace std::chrono_literals;
using cuvmm::test::DescriptorLimit;
using cuvmm::test::open_descriptors;
using test::Bytes;
using test::only_packet;
using test::packet_of;

constexpr MessageKind greeting = first_free_kind;
const Bytes four{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

Deadline soon() {  // for what is to happen: long enough for a machine that has much else to do
  return Deadline::in(120s);
}
Deadline at_once() {  // for what is not
  return Deadline::in(20ms);
}

ErrorKind kind_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::driver_failure;
}

std::vector<UniqueDescriptor> null_files(std::size_t count) {
  std::vector<UniqueDescriptor> files;
  while (files.size() < count) files.emplace_back(::open("/dev/null", O_RDWR | O_CLOEXEC));
  return files;
}
std::vector<int> numbers_of(const std::vector<UniqueDescriptor>& files) {
  std::vector<int> numbers;
  for (const UniqueDescriptor& each : files) numbers.push_back(each.get());
  return numbers;
}

TEST(DescriptorSocket, CarriesBytesAndDescriptors) {
  auto [one, other] = DescriptorSocket::pair();
  const auto files = null_files(3);
  one.send({.kind = greeting, .bytes = four, .descriptors = numbers_of(files)}, soon());
  const Message message = other.receive(soon());
  EXPECT_EQ(message.kind, greeting);
  EXPECT_EQ(message.bytes, four);
  ASSERT_EQ(message.descriptors.size(), 3u);
  for (const UniqueDescriptor& each : message.descriptors) {
    EXPECT_NE(::fcntl(each.get(), F_GETFD) & FD_CLOEXEC, 0);
    for (const UniqueDescriptor& sent : files) EXPECT_NE(each.get(), sent.get());
  }
  EXPECT_EQ(one.peer().process, ::getpid());
  EXPECT_EQ(one.peer().user, ::geteuid());
}

TEST(DescriptorSocket, CarriesMoreDescriptorsThanOnePacketHas) {
  auto [one, other] = DescriptorSocket::pair();
  for (const std::size_t count : {252u, 253u, 254u, 400u}) {
    const auto files = null_files(count);
    const std::size_t open = open_descriptors();
    {
      std::jthread sender(
          [&, &from = one] { from.send({.kind = greeting, .descriptors = numbers_of(files)}, soon()); });
      const Message message = other.receive(soon());
      sender.join();
      EXPECT_EQ(message.descriptors.size(), count);
    }
    EXPECT_EQ(open_descriptors(), open);
  }
}

TEST(DescriptorSocket, CarriesMoreBytesThanTheSystemTakesAtOnce) {
  auto [one, other] = DescriptorSocket::pair();
  const auto sent = cuvmm::test::pattern(3'000'001, 7);
  std::jthread sender([&, &from = one] { from.send({.kind = greeting, .bytes = sent}, soon()); });
  EXPECT_EQ(other.receive(soon()).bytes, sent);
  sender.join();
}

TEST(DescriptorSocket, RefusesWhatIsNotToBeSent) {
  auto [one, other] = DescriptorSocket::pair({.bytes = 4, .descriptors = 1});
  const Bytes five(5);
  auto closed = null_files(1);
  const int number = closed.front().get();
  closed.clear();
  for (const MessageKind of_the_library : {0, 3, 15, 0xffff}) {
    EXPECT_EQ(kind_of([&, &s = one] { s.send({.kind = of_the_library}, soon()); }), ErrorKind::invalid_use);
    EXPECT_EQ(kind_of([&, &s = one] { s.reply({}, {.kind = of_the_library}, soon()); }), ErrorKind::invalid_use);
    EXPECT_EQ(kind_of([&, &s = one] { static_cast<void>(s.ask({.kind = of_the_library}, at_once())); }),
              ErrorKind::invalid_use);
  }
  EXPECT_EQ(kind_of([&, &s = one] { s.send({.kind = greeting, .bytes = five}, soon()); }), ErrorKind::invalid_use);
  EXPECT_EQ(kind_of([&, &s = one] {
              s.send({.kind = greeting, .descriptors = {&number, 1}}, soon());
            }),
            ErrorKind::invalid_use);
  one.send({.kind = greeting, .bytes = four}, soon());
  EXPECT_EQ(other.receive(soon()).bytes, four) << "the connection is as before";
}

TEST(DescriptorSocket, NothingIsSentOfAMessageWithADescriptorThatIsNotOpen) {
  auto [one, other] = DescriptorSocket::pair();
  auto files = null_files(300);
  const auto numbers = numbers_of(files);
  files[260].close();
  const auto sent = one.try_send({.kind = greeting, .descriptors = numbers}, soon());
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.failure().kind, ErrorKind::invalid_use);
  EXPECT_NE(sent.failure().message().find("descriptors[260] = "), std::string::npos) << sent.failure().message();
  EXPECT_EQ(kind_of([&, &s = other] { static_cast<void>(s.receive(at_once())); }), ErrorKind::timed_out);
  files[260] = std::move(null_files(1).front());
  one.send({.kind = greeting, .descriptors = numbers_of(files)}, soon());
  EXPECT_EQ(other.receive(soon()).descriptors.size(), 300u) << "the connection goes on";
}

TEST(DescriptorSocket, WhoGivesUpInTheMiddleOfAMessageSaysWhy) {
  auto [one, other] = DescriptorSocket::pair();
  PacketHeader part = only_packet(4);
  part.last = false;
  part.total_bytes = 8;
  Failure why;
  why.kind = ErrorKind::out_of_descriptors;
  const auto words = encode(why);
  PacketHeader failure = only_packet(words.size());
  failure.kind = failure_kind;
  test::send_raw(other.descriptor(), packet_of(part, four));
  test::send_raw(other.descriptor(), packet_of(failure, words));
  other.close();
  EXPECT_EQ(kind_of([&, &s = one] { static_cast<void>(s.receive(soon())); }), ErrorKind::out_of_descriptors);
  EXPECT_EQ(kind_of([&, &s = one] { static_cast<void>(s.receive(soon())); }), ErrorKind::peer_gone);
}

TEST(DescriptorSocket, C18_WaitsUntilTheDeadlineAndNoLonger) {
  auto [one, other] = DescriptorSocket::pair();
  EXPECT_EQ(kind_of([&, &s = one] { static_cast<void>(s.receive(at_once())); }), ErrorKind::timed_out);
  EXPECT_EQ(kind_of([&, &s = one] { static_cast<void>(s.ask({.kind = greeting}, at_once())); }), ErrorKind::timed_out);
  const Bytes much(1 << 16);
  const auto fill = [&, &s = one] {
    for (int round = 0; round < 10'000; ++round) s.send({.kind = greeting, .bytes = much}, at_once());
  };
  EXPECT_EQ(kind_of(fill), ErrorKind::timed_out) << "nobody takes it";
}

TEST(DescriptorSocket, C18_ALateReplyIsNotTakenForTheNextOne) {
  auto [client, server] = DescriptorSocket::pair();
  EXPECT_EQ(kind_of([&, &s = client] { static_cast<void>(s.ask({.kind = greeting}, at_once())); }),
            ErrorKind::timed_out);
  const Message first = server.receive(soon());
  server.reply(first, {.kind = greeting, .bytes = four}, soon());  // too late
  std::jthread answers([&, &s = server] {
    const Message second = s.receive(soon());
    s.send({.kind = 77}, soon());  // an announcement comes between
    s.reply(second, {.kind = 99}, soon());
  });
  EXPECT_EQ(client.ask({.kind = greeting}, soon()).kind, 99);
  answers.join();
  EXPECT_EQ(client.receive(soon()).kind, 77) << "and is not lost";
  EXPECT_EQ(kind_of([&, &s = client] { static_cast<void>(s.receive(at_once())); }), ErrorKind::timed_out);
}

TEST(DescriptorSocket, KeepsNoMoreThanItsLimitsWhileItWaitsForAReply) {
  // What comes before the reply: so many messages of so many bytes and descriptors.
  const auto asked = [](int messages, std::size_t bytes, std::size_t descriptors) {
    auto [client, server] = DescriptorSocket::pair({.bytes = 100, .descriptors = 2});
    const auto files = null_files(descriptors);
    std::jthread answers([&, &s = server] {
      const Message request = s.receive(soon());
      const Bytes content(bytes);
      bool sent = true;
      for (int index = 0; sent && index < messages; ++index)
        sent = s.try_send({.kind = 77, .bytes = content, .descriptors = numbers_of(files)}, soon()).has_value();
      if (sent) static_cast<void>(s.try_reply(request, {.kind = 99}, soon()));
    });
    const auto answer = client.try_ask({.kind = greeting}, soon());
    if (!answer) {
      EXPECT_LT(client.descriptor(), 0) << "the connection has ended";
      return answer.failure().message();
    }
    answers.join();
    for (int index = 0; index < messages; ++index) EXPECT_EQ(client.receive(soon()).bytes.size(), bytes);
    client.send({.kind = greeting}, soon());
    return std::string();
  };
  EXPECT_EQ(asked(4, 100, 0), "");
  EXPECT_NE(asked(5, 100, 0).find("4 messages of 400 bytes"), std::string::npos) << asked(5, 100, 0);
  EXPECT_EQ(asked(4, 1, 2), "");
  EXPECT_NE(asked(5, 1, 2).find("and 8 descriptors"), std::string::npos) << asked(5, 1, 2);
  EXPECT_EQ(asked(4096, 0, 0), "");
  EXPECT_NE(asked(4097, 0, 0).find("4096 messages"), std::string::npos) << asked(4097, 0, 0);
}

TEST(DescriptorSocket, WhatWasKeptAndTakenMakesRoomAgain) {
  auto [client, server] = DescriptorSocket::pair({.bytes = 4, .descriptors = 1});
  for (int round = 0; round < 3; ++round) {
    std::jthread answers([&, &s = server] {
      const Message request = s.receive(soon());
      for (int index = 0; index < 4; ++index) s.send({.kind = 77, .bytes = four}, soon());
      s.reply(request, {.kind = 99}, soon());
    });
    EXPECT_EQ(client.ask({.kind = greeting}, soon()).kind, 99);
    answers.join();
    for (int index = 0; index < 4; ++index) EXPECT_EQ(client.receive(soon()).bytes, four);
  }
}

TEST(DescriptorSocket, C18_ADeadlineThatHasPassedAsksForWhatIsThere) {
  auto [client, server] = DescriptorSocket::pair();
  const Deadline passed = Deadline::at(Deadline::Clock::now());
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(kind_of([&, &s = client] { static_cast<void>(s.ask({.kind = greeting}, passed)); }),
              ErrorKind::timed_out);
    server.reply(server.receive(soon()), {.kind = greeting}, soon());  // too late
  }
  const auto sent = cuvmm::test::pattern(3 * most_packet_content, 7);
  server.send({.kind = 77, .bytes = sent}, soon());
  EXPECT_EQ(client.receive(passed).bytes, sent) << "though it lies behind late replies, in several packets";
}

TEST(DescriptorSocket, C18_SaysThatThePeerIsGone) {
  {
    auto [one, other] = DescriptorSocket::pair();
    other.send({.kind = greeting, .bytes = four}, soon());
    other.close();
    EXPECT_EQ(one.receive(soon()).bytes, four) << "what was sent before";
    EXPECT_EQ(kind_of([&, &s = one] { static_cast<void>(s.receive(soon())); }), ErrorKind::peer_gone);
    EXPECT_EQ(kind_of([&, &s = one] { s.send({.kind = greeting}, soon()); }), ErrorKind::peer_gone);
  }
  auto [one, other] = DescriptorSocket::pair();
  PacketHeader first = only_packet(4);
  first.last = false;
  first.total_bytes = 8;
  test::send_raw(other.descriptor(), packet_of(first, four));
  other.close();
  const auto middle = one.try_receive(soon());
  ASSERT_FALSE(middle);
  EXPECT_EQ(middle.failure().kind, ErrorKind::peer_gone);
  EXPECT_NE(middle.failure().reason.find("middle"), std::string::npos) << middle.failure().message();
}

// The default disposition of SIGPIPE would end this program.
TEST(DescriptorSocket, NeverRaisesSigpipe) {
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  auto [one, other] = DescriptorSocket::pair();
  other.close();
  EXPECT_EQ(kind_of([&, &s = one] { s.send({.kind = greeting}, soon()); }), ErrorKind::peer_gone);
  std::signal(SIGPIPE, before);
}

TEST(DescriptorSocket, AFailureThatIsAnsweredIsThrownAtTheOtherEnd) {
  auto [client, server] = DescriptorSocket::pair();
  std::jthread answers([&, &s = server] {
    Failure failure;
    failure.kind = ErrorKind::out_of_device_memory;
    failure.call = "cuMemCreate";
    EXPECT_TRUE(s.try_reply(s.receive(soon()), failure, soon()));
    s.reply(s.receive(soon()), {.kind = greeting}, soon());
  });
  try {
    static_cast<void>(client.ask({.kind = greeting}, soon()));
    ADD_FAILURE() << "it was no failure";
  } catch (const OutOfDeviceMemory& error) {
    EXPECT_NE(error.call().find("process"), std::string::npos) << error.what();
    EXPECT_NE(error.call().find("cuMemCreate"), std::string::npos) << error.what();
  }
  EXPECT_EQ(client.ask({.kind = greeting}, soon()).kind, greeting) << "the connection goes on";
  answers.join();
}

// It is the last thing that a peer says; one that answers a request is not.
TEST(DescriptorSocket, AFailureThatAnswersNothingIsThePeersEnd) {
  auto [one, other] = DescriptorSocket::pair();
  Failure failure;
  failure.kind = ErrorKind::timed_out;
  failure.reason = "for a reason of its own";
  const Bytes content = encode(failure);
  PacketHeader header = only_packet(content.size());
  header.kind = failure_kind;
  test::send_raw(other.descriptor(), packet_of(header, content));
  const auto told = one.try_receive(soon());
  ASSERT_FALSE(told);
  EXPECT_EQ(told.failure().kind, ErrorKind::timed_out);
  EXPECT_EQ(one.descriptor(), -1);
  const auto later = one.try_receive(soon());
  ASSERT_FALSE(later);
  EXPECT_EQ(later.failure().kind, ErrorKind::peer_gone) << "which is not that nothing came in time";
  EXPECT_NE(later.failure().message().find("for a reason of its own"), std::string::npos) << later.failure().message();
}

TEST(DescriptorSocket, AProtocolViolationEndsTheConnectionAndIsToldToThePeer) {
  const auto sent_raw = [](const Bytes& packet, const std::vector<int>& descriptors, std::string_view words) {
    auto [one, other] = DescriptorSocket::pair();
    const std::size_t open = open_descriptors();
    test::send_raw(other.descriptor(), packet, descriptors);
    const auto received = one.try_receive(soon());
    ASSERT_FALSE(received) << words;
    EXPECT_EQ(received.failure().kind, ErrorKind::protocol_violation);
    EXPECT_NE(received.failure().reason.find(words), std::string::npos) << received.failure().message();
    EXPECT_EQ(kind_of([&, &s = one] { static_cast<void>(s.receive(soon())); }), ErrorKind::peer_gone);
    EXPECT_EQ(kind_of([&, &s = other] { static_cast<void>(s.receive(soon())); }), ErrorKind::protocol_violation);
    EXPECT_EQ(open_descriptors(), open - 2) << "what came is closed, and so is the connection, at both ends";
  };
  const auto files = null_files(2);
  sent_raw(Bytes(7), {}, "mark");
  sent_raw(Bytes(most_packet_bytes + 1), {}, "larger than");
  sent_raw(packet_of(only_packet(0)), numbers_of(files), "2 descriptors came with it, and it says 0");
  sent_raw(packet_of(only_packet(0, 3)), numbers_of(files), "3 descriptors were sent with it and 2 arrived");
  PacketHeader failure = only_packet(4);
  failure.kind = failure_kind;
  sent_raw(packet_of(failure, four), {}, "cannot be read");
}

TEST(DescriptorSocket, ALackOfDescriptorsAtTheReceiverIsTypedAndLeavesNothing) {
  const auto files = null_files(10);
  for (const unsigned left : {0u, 1u, 9u}) {
    auto [one, other] = DescriptorSocket::pair();
    one.send({.kind = greeting, .descriptors = numbers_of(files)}, soon());
    const std::size_t open = open_descriptors();
    {
      const DescriptorLimit limit(left);
      const auto received = other.try_receive(soon());
      ASSERT_FALSE(received);
      EXPECT_EQ(received.failure().kind, ErrorKind::out_of_descriptors) << received.failure().message();
    }
    EXPECT_EQ(open_descriptors(), open - 1) << "the connection was given up";
    EXPECT_EQ(kind_of([&, &s = one] { static_cast<void>(s.receive(soon())); }), ErrorKind::out_of_descriptors)
        << "the sender is told";
  }
  auto [one, other] = DescriptorSocket::pair();
  one.send({.kind = greeting, .descriptors = numbers_of(files)}, soon());
  const DescriptorLimit enough(10);
  EXPECT_EQ(other.receive(soon()).descriptors.size(), 10u);
}

TEST(DescriptorSocket, ReceivesNoDescriptorZero) {
  auto [one, other] = DescriptorSocket::pair();
  const auto files = null_files(1);
  one.send({.kind = greeting, .descriptors = numbers_of(files)}, soon());
  const UniqueDescriptor input(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  ::close(0);
  const auto received = other.try_receive(soon());
  EXPECT_LT(::fcntl(0, F_GETFD), 0);
  if (input) ::dup2(input.get(), 0);
  ASSERT_TRUE(received);
  EXPECT_GT(received->descriptors.front().get(), 2);
}

TEST(DescriptorSocket, TakesOverEndsOfTheRightTypeOnly) {
  int stream[2], packets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, packets), 0);
  const UniqueDescriptor other_stream(stream[1]);
  EXPECT_EQ(kind_of([&] { static_cast<void>(DescriptorSocket::adopt(UniqueDescriptor(stream[0]))); }),
            ErrorKind::invalid_use);
  EXPECT_EQ(kind_of([&] { static_cast<void>(DescriptorSocket::adopt(UniqueDescriptor(::open("/dev/null", O_RDWR)))); }),
            ErrorKind::invalid_use);
  auto one = DescriptorSocket::adopt(UniqueDescriptor(packets[0]));
  auto other = DescriptorSocket::adopt(UniqueDescriptor(packets[1]));
  one.send({.kind = greeting, .bytes = four}, soon());
  EXPECT_EQ(other.receive(soon()).bytes, four);
}

TEST(HandleExchange, HandsOverHandlesOfBothTypesInTheirOrder) {
  emulator::Configuration configuration = cuvmm::test::strict_machine();
  configuration.imex_channels = 1;
  cuvmm::test::RangeMachine machine(configuration);
  auto [one, other] = DescriptorSocket::pair();
  std::vector<PhysicalMemory> memories;
  std::vector<HandleOfMemory> handles;
  for (const HandleType type :
       {HandleType::posix_file_descriptor, HandleType::fabric, HandleType::posix_file_descriptor}) {
    memories.push_back(PhysicalMemory::create(machine.driver(), {.handle_types = type}, (1 + memories.size()) * 2_MiB));
    handles.push_back({ShareableHandle::export_from(memories.back(), type), memories.back().size()});
  }
  send_handles(one, handles, soon());
  handles.clear();
  one.close();
  const auto received = receive_handles(other, soon());
  ASSERT_EQ(received.size(), 3u);
  for (std::size_t index = 0; index < 3; ++index) {
    EXPECT_EQ(received[index].bytes, (1 + index) * 2_MiB);
    EXPECT_NO_THROW(
        static_cast<void>(received[index].handle.import_into(machine.driver(), {.bytes = received[index].bytes})));
  }
}

// As docs/sharing.md shows it: handles tell of chunks, and the content's length comes beside them.
TEST(HandleExchange, ARangeIsHandedOverWithTheLengthOfItsContent) {
  cuvmm::test::RangeMachine machine;
  const MappedRangeOptions options{.capacity = 64_MiB,
                                   .memory = {.handle_types = HandleType::posix_file_descriptor},
                                   .chunks = ChunkPolicy::fixed(4_MiB)};
  auto [one, other] = DescriptorSocket::pair();
  {
    auto range = MappedRange::create(machine.driver(), options);
    range.append(9_MiB);
    const std::uint64_t length = range.size();
    one.send({.kind = first_free_kind, .bytes = std::as_bytes(std::span(&length, 1))}, soon());
    std::vector<HandleOfMemory> handles;
    for (const ChunkInfo& chunk : range.chunks()) {
      const SharedPhysicalMemory memory = range.memory_at(chunk.offset);
      handles.push_back(
          {ShareableHandle::export_from(memory.memory(), HandleType::posix_file_descriptor), memory.size()});
    }
    send_handles(one, handles, soon());
  }
  auto range = MappedRange::create(machine.driver(), options);
  std::uint64_t length = 0;
  const Message told = other.receive(soon());
  ASSERT_EQ(told.bytes.size(), sizeof length);
  std::memcpy(&length, told.bytes.data(), sizeof length);
  for (const auto& each : receive_handles(other, soon()))
    range.append(SharedPhysicalMemory(each.handle.import_into(machine.driver(), {.bytes = each.bytes})));
  EXPECT_EQ(range.size(), 12_MiB) << "of chunks";
  range.truncate(length);
  EXPECT_EQ(range.size(), 9_MiB);
  EXPECT_EQ(range.mapped_bytes(), 12_MiB);
}

TEST(HandleExchange, ASizeThatNoMemoryHasIsNeitherSentNorTaken) {
  const auto received = [](std::uint64_t size) {
    auto [one, other] = DescriptorSocket::pair();
    const auto files = null_files(1);
    Bytes bytes(12);
    for (std::size_t byte = 0; byte < 8; ++byte) bytes[byte] = static_cast<std::byte>(size >> (8 * byte));
    bytes[8] = std::byte{1};
    PacketHeader header = only_packet(bytes.size(), 1);
    header.kind = 0xffff;
    test::send_raw(one.descriptor(), packet_of(header, bytes), numbers_of(files));
    const auto handles = try_receive_handles(other, soon());
    return handles ? std::string() : handles.failure().message();
  };
  const auto sent = [](std::size_t size) {
    auto [one, other] = DescriptorSocket::pair();
    std::vector<HandleOfMemory> handles;
    handles.push_back({ShareableHandle::adopt(std::move(null_files(1).front())), size});
    const auto result = try_send_handles(one, handles, soon());
    return result ? std::string() : std::string(to_string(result.failure().kind));
  };
  constexpr std::uint64_t most = SIZE_MAX / 2;
  for (const std::uint64_t wrong : {most + 1, UINT64_MAX - 2_MiB + 1, UINT64_MAX}) {
    EXPECT_NE(received(wrong).find("no memory has"), std::string::npos) << wrong << received(wrong);
    EXPECT_EQ(sent(wrong), "invalid use") << wrong;
  }
  EXPECT_NE(received(0).find("no size"), std::string::npos);
  EXPECT_EQ(sent(0), "invalid use");
  EXPECT_EQ(received(most), "");
  EXPECT_EQ(sent(most), "");
}

// What receiving such a message fails with; empty if it does not.
Failure failure_to_receive_handles(MessageKind kind, const Bytes& bytes, std::uint32_t files_sent) {
  auto [one, other] = DescriptorSocket::pair();
  const auto files = null_files(files_sent);
  PacketHeader header = only_packet(bytes.size(), files_sent);
  header.kind = kind;
  test::send_raw(one.descriptor(), packet_of(header, bytes), numbers_of(files));
  const std::size_t open = open_descriptors();
  const auto handles = try_receive_handles(other, soon());
  const bool ended = other.descriptor() < 0;
  EXPECT_EQ(open_descriptors() + (ended ? 1 : 0), open + (handles ? files_sent : 0)) << "closed";
  if (handles) return {};
  EXPECT_EQ(ended, handles.failure().kind == ErrorKind::protocol_violation);
  if (ended) {
    EXPECT_EQ(kind_of([&, &s = one] { static_cast<void>(s.receive(soon())); }), ErrorKind::protocol_violation)
        << "the sender is told";
    EXPECT_EQ(kind_of([&, &s = other] { static_cast<void>(s.receive(soon())); }), ErrorKind::peer_gone);
  } else {
    one.send({.kind = greeting}, soon());
    EXPECT_EQ(other.receive(soon()).kind, greeting) << "the connection goes on";
  }
  return handles.failure();
}

TEST(HandleExchange, WhatIsNoMessageOfHandlesIsATypedErrorAndEndsTheConnection) {
  constexpr MessageKind of_handles = 0xffff;
  const auto entry = [](std::uint8_t size, std::uint8_t type) {
    Bytes bytes(12);
    bytes[2] = std::byte{size};
    bytes[8] = std::byte{type};
    return bytes;
  };
  const auto expect_violation = [](MessageKind kind, const Bytes& bytes, std::uint32_t files, std::string_view words) {
    const Failure failure = failure_to_receive_handles(kind, bytes, files);
    EXPECT_EQ(failure.kind, ErrorKind::protocol_violation) << words;
    EXPECT_NE(failure.reason.find(words), std::string::npos) << words << ": " << failure.message();
  };
  EXPECT_TRUE(failure_to_receive_handles(of_handles, entry(32, 1), 1).call.empty());
  expect_violation(greeting, entry(32, 1), 1, "a message of kind 16 came");
  expect_violation(of_handles, entry(32, 1), 0, "did not come");
  expect_violation(of_handles, entry(32, 1), 2, "do not match");
  expect_violation(of_handles, entry(0, 1), 1, "no size");
  expect_violation(of_handles, entry(32, 8), 0, "within a fabric handle");
  expect_violation(of_handles, entry(32, 16), 0, "no handle type 16");
  for (const std::size_t size : {1u, 7u, 8u, 11u})
    expect_violation(of_handles, Bytes(size), 0, "ends within the size and type");
  EXPECT_EQ(failure_to_receive_handles(of_handles, entry(32, 2), 0).kind, ErrorKind::not_supported)
      << "a handle of Windows";
}

TEST(DescriptorSocket, KeepsNoDescriptorsOverTenThousandRounds) {
  auto [one, other] = DescriptorSocket::pair();
  const auto files = null_files(2);
  const std::size_t open = open_descriptors();
  for (int round = 0; round < 10'000; ++round) {
    one.send({.kind = greeting, .bytes = four, .descriptors = numbers_of(files)}, soon());
    const Message message = other.receive(soon());
    other.reply(message, {.kind = greeting}, soon());
    static_cast<void>(one.try_receive(soon()));
  }
  EXPECT_EQ(open_descriptors(), open);
}

}  // namespace
}  // namespace cuvmm::sharing
