#include "sharing/packet.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "open_descriptors.hpp"
#include "raw_packets.hpp"
#include "read_everything.hpp"
#include "sharing/content.hpp"

namespace cuvmm::sharing {
namespace {

using test::Bytes;
using test::fault_in;
using test::only_packet;
using test::packet_of;

const Bytes four{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

TEST(Packet, IsTakenAsItWasMade) {
  PacketHeader header = only_packet(4);
  header.kind = 700;
  header.number = 0xfedcba98;
  header.is_reply = true;
  MessageAssembler assembler({});
  EXPECT_EQ(assembler.add(packet_of(header, four), {}), std::nullopt);
  ASSERT_TRUE(assembler.complete());
  const Message message = assembler.take();
  EXPECT_EQ(message.kind, 700);
  EXPECT_EQ(message.number, 0xfedcba98);
  EXPECT_TRUE(message.is_reply);
  EXPECT_EQ(message.bytes, four);
}

// Other builds and machines have to read it, so each byte has its place.
TEST(Packet, HasTheLayoutThatIsWrittenDown) {
  PacketHeader header;
  header.kind = 0x0201;
  header.number = 0x06050403;
  header.is_reply = true;
  header.index = 0x0a090807;
  header.last = true;
  header.total_bytes = 0x1211100f0e0d0c0bULL;
  header.total_descriptors = 0x16151413;
  header.bytes = 0x1a191817;
  header.descriptors = 0x1e1d1c1b;
  const Bytes packet = encode(header);
  ASSERT_EQ(packet.size(), packet_header_bytes);
  const std::vector<int> expected{'c',  'v',  'S',  'h',  1,    0,    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
                                  0x09, 0x0a, 3,    0,    0,    0,    0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12,
                                  0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e};
  for (std::size_t index = 0; index < expected.size(); ++index)
    EXPECT_EQ(std::to_integer<int>(packet[index]), expected[index]) << index;
}

TEST(Packet, IsRefusedForEachThingThatIsWrongWithIt) {
  const auto changed = [](const std::function<void(PacketHeader&)>& change) {
    PacketHeader header = only_packet(4);
    change(header);
    return packet_of(header, four);
  };
  const auto with_byte = [](std::size_t at, int value) {
    Bytes packet = packet_of(only_packet(4), four);
    packet[at] = static_cast<std::byte>(value);
    return packet;
  };
  EXPECT_EQ(fault_in(packet_of(only_packet(4), four)), "");
  Bytes cut = packet_of(only_packet(4), four);
  cut.resize(20);
  const std::vector<std::pair<Bytes, std::string>> wrong{
      {{}, "mark"},
      {Bytes(3), "mark"},
      {with_byte(0, 'x'), "mark"},
      {with_byte(4, 2), "version 2"},
      {with_byte(16, 5), "flags"},
      {cut, "shorter"},
      {packet_of(only_packet(4)), "says that it holds 4 bytes, and holds 0"},
      {packet_of(only_packet(3), four), "holds 4"},
      {changed([](auto& h) { h.descriptors = h.total_descriptors = 1; }), "does not carry them"},
      {changed([](auto& h) { h.index = 1; }), "packet 0 was due"},
      {changed([](auto& h) { h.total_bytes = std::uint64_t{1} << 60; }), "more than"},
      {changed([](auto& h) { h.total_descriptors = 1'000'000; }), "more than"},
      {changed([](auto& h) { h.total_bytes = 3; }), "more than was announced"},
      {changed([](auto& h) { h.total_bytes = 5; }), "too early"},
      {changed([](auto& h) { h.last = false; }), "beyond its end"},
  };
  for (const auto& [packet, words] : wrong)
    EXPECT_NE(fault_in(packet).find(words), std::string::npos) << words << ": '" << fault_in(packet) << "'";
  PacketHeader empty = only_packet(0);
  empty.last = false;
  empty.total_bytes = 4;
  EXPECT_NE(fault_in(packet_of(empty)), "") << "packets with nothing in them could go on for ever";
  EXPECT_EQ(fault_in(packet_of(only_packet(0))), "") << "a message may be empty";
}

TEST(Packet, OfAnotherMessageIsRefused) {
  PacketHeader first = only_packet(4);
  first.last = false;
  first.total_bytes = 8;
  PacketHeader second = first;
  second.index = 1;
  second.last = true;
  for (const auto& change : std::vector<std::function<void(PacketHeader&)>>{
           [](auto& h) { ++h.kind; }, [](auto& h) { ++h.number; }, [](auto& h) { h.is_reply = true; },
           [](auto& h) { ++h.total_bytes; }, [](auto& h) { ++h.total_descriptors; }, [](auto& h) { h.index = 0; }}) {
    MessageAssembler assembler({});
    EXPECT_EQ(assembler.add(packet_of(first, four), {}), std::nullopt);
    PacketHeader other = second;
    change(other);
    EXPECT_NE(assembler.add(packet_of(other, four), {}), std::nullopt);
  }
  MessageAssembler assembler({});
  EXPECT_EQ(assembler.add(packet_of(first, four), {}), std::nullopt);
  EXPECT_FALSE(assembler.complete());
  EXPECT_EQ(assembler.add(packet_of(second, four), {}), std::nullopt);
  EXPECT_TRUE(assembler.complete());
}

TEST(Packet, AFailureMayComeInPlaceOfTheRest) {
  PacketHeader first = only_packet(4, 1);
  first.last = false;
  first.total_bytes = 8;
  const auto after_first = [&](const PacketHeader& header) {
    MessageAssembler assembler({});
    std::vector<UniqueDescriptor> descriptors;
    descriptors.emplace_back(::open("/dev/null", O_RDWR | O_CLOEXEC));
    EXPECT_EQ(assembler.add(packet_of(first, four), std::move(descriptors)), std::nullopt);
    if (auto fault = assembler.add(packet_of(header, four), {})) return *fault;
    EXPECT_TRUE(assembler.complete());
    const Message message = assembler.take();
    EXPECT_EQ(message.kind, failure_kind);
    EXPECT_EQ(message.bytes, four);
    EXPECT_TRUE(message.descriptors.empty());
    return std::string();
  };
  PacketHeader failure = only_packet(4);
  failure.kind = failure_kind;
  const std::size_t open = cuvmm::test::open_descriptors();
  EXPECT_EQ(after_first(failure), "");
  EXPECT_EQ(cuvmm::test::open_descriptors(), open) << "what had come is closed";
  for (const auto& change : std::vector<std::function<void(PacketHeader&)>>{
           [](auto& h) { h.kind = 700; }, [](auto& h) { h.is_reply = true; }, [](auto& h) { h.index = 1; },
           [](auto& h) { h.last = false; }}) {
    PacketHeader other = failure;
    change(other);
    EXPECT_NE(after_first(other), "");
  }
}

TEST(Content, ComesBackAsItWas) {
  const Introduction introduction{{"host", "boot", "26:1"}, "token"};
  const auto read = decode_introduction(encode(introduction));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->locality, introduction.locality);
  EXPECT_EQ(read->token, introduction.token);
  Failure failure;
  failure.kind = ErrorKind::out_of_device_memory;
  failure.call = "cuMemCreate";
  failure.code = 2;
  failure.rule = std::string(5000, 'r');
  failure.asked_bytes = 77;
  const auto told = decode_failure(encode(failure));
  ASSERT_TRUE(told);
  EXPECT_EQ(told->kind, failure.kind);
  EXPECT_EQ(told->call, failure.call);
  EXPECT_EQ(told->code, 2);
  EXPECT_EQ(told->asked_bytes, failure.asked_bytes);
  EXPECT_EQ(told->free_bytes, std::nullopt);
  EXPECT_EQ(told->rule.size(), 2048u) << "cut";
  Bytes unknown = encode(failure);
  unknown[0] = std::byte{200};
  EXPECT_FALSE(decode_failure(unknown)) << "there is no such kind";
}

// --- Anything at all: whatever the bytes, there is an answer, and never more memory than was sent.

Bytes content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string content = text.str();
  const auto bytes = std::as_bytes(std::span(content));
  return {bytes.begin(), bytes.end()};
}

// What was once a hard case stays one: the corpus holds a message of each kind.
TEST(Packet, TheCorpusIsReadAsWhatItIs) {
  const std::filesystem::path corpus(CUVMM_SHARING_CORPUS);
  const std::size_t open = cuvmm::test::open_descriptors();
  for (const auto& entry : std::filesystem::directory_iterator(corpus))
    EXPECT_TRUE(test::read_everything_in(content_of(entry))) << entry.path();
  EXPECT_EQ(cuvmm::test::open_descriptors(), open);
  EXPECT_TRUE(decode_introduction(content_of(corpus / "introduction")));
  EXPECT_TRUE(Locality::from_bytes(content_of(corpus / "locality")));
  EXPECT_TRUE(decode_failure(content_of(corpus / "failure")));
  EXPECT_TRUE(decode_attach_request(content_of(corpus / "range_attach")));
  EXPECT_TRUE(decode_chunk_table(content_of(corpus / "range_chunks")));
  EXPECT_TRUE(decode_fetch_request(content_of(corpus / "range_fetch")));
  EXPECT_TRUE(decode_mapped(content_of(corpus / "range_mapped")));
  EXPECT_TRUE(decode_standing(content_of(corpus / "range_standing")));
  EXPECT_TRUE(decode_terms(content_of(corpus / "range_terms")));
  EXPECT_EQ(fault_in(content_of(corpus / "packet_hello")), "");
  Message handles{.kind = handles_message, .bytes = content_of(corpus / "handles_two")};
  handles.descriptors = test::some_descriptors(2);
  EXPECT_TRUE(handles_in(handles));
}

TEST(Packet, NonsenseIsReadWithoutHarm) {
  std::vector<Bytes> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(CUVMM_SHARING_CORPUS))
    corpus.push_back(content_of(entry));
  ASSERT_GE(corpus.size(), 5u);
  const char* const longer = std::getenv("CUVMM_TEST_LONG");
  const int rounds = longer != nullptr && *longer == '1' ? 2'000'000 : 100'000;
  std::mt19937 random(20'261'130);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  for (int round = 0; round < rounds; ++round) {
    Bytes bytes = corpus[below(corpus.size())];
    for (std::size_t change = below(4); change != SIZE_MAX; --change) {
      if (bytes.empty()) bytes.resize(1 + below(80));
      switch (below(4)) {
        case 0:
          bytes[below(bytes.size())] = static_cast<std::byte>(random());
          break;
        case 1:
          bytes.resize(below(bytes.size() + 1));
          break;
        case 2:
          bytes.insert(bytes.end(), below(64), static_cast<std::byte>(random()));
          break;
        default:
          bytes[below(bytes.size())] ^= static_cast<std::byte>(1U << below(8));
      }
    }
    ASSERT_TRUE(test::read_everything_in(bytes)) << "round " << round;
  }
}

}  // namespace
}  // namespace cuvmm::sharing
