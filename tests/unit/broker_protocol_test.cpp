// What processes and brokers say to each other, as bytes.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "emulator/broker/command_line.hpp"
#include "emulator/broker/protocol.hpp"

namespace cuvmm::emulator::broker {
namespace {

using Bytes = std::vector<std::byte>;

Properties some_properties() {
  Properties properties;
  properties.type = 1;
  properties.handle_types = 9;
  properties.location_type = 3;
  properties.location = -2;
  properties.compression = 1;
  properties.rdma = 1;
  properties.usage = 0x1234;
  return properties;
}

std::vector<Request> requests() {
  const NodePlace place(3, model::Place::on_device(7));
  return {Hello{-5},
          Create{place, 1ULL << 40, some_properties()},
          GiveBack{~0ULL},
          AskUsage{NodePlace(1, model::Place::on_host())},
          AskFile{place},
          ExportDescriptor{{1, 2, 1ULL << 63}, false, 7},
          ImportDescriptor{},
          ExportToken{TokenKind::ipc, 12},
          ImportToken{TokenKind::ipc, 13, 4, true},
          ExportPool{14, place, 15},
          ImportPool{},
          DropPool{16},
          ExportPoolRange{17, {1, 2, 3}, 18, 19},
          ImportPoolRange{20, 21},
          OpenPoolMemory{22, 23, 24},
          CreateMulticast{25, 1ULL << 41, some_properties()},
          JoinMulticast{26, -27},
          BindMulticast{28, 29, 30, 31, 32, 33},
          UnbindMulticast{34, 35, 36, 37},
          AskMulticast{38, 39, 40, 41},
          AskBound{42}};
}

std::vector<Reply> replies() {
  return {Welcome{1, 2, 3, 4, "profile=gb200,devices=2"},
          Done{},
          Memory{{5, NodePlace(1, model::Place::on_device(2)), 6, some_properties(), 7, 8}},
          Usage{8, 9},
          Token{10},
          Refused{Refusal::no_descriptor, 24},
          Pool{25, NodePlace(2, model::Place::on_host())},
          PoolRange{26, 27, 28},
          Multicast{29, true, 30, {31, 32}, {33, 34, 35, 36, 37, 38}, true}};
}

TEST(Protocol, CarriesEveryMessageWhole) {
  ASSERT_EQ(requests().size(), std::variant_size_v<Request>);
  ASSERT_EQ(replies().size(), std::variant_size_v<Reply>);
  for (const Request& request : requests()) {
    const auto read = decode_request(encode(request));
    ASSERT_TRUE(read) << request.index();
    EXPECT_EQ(read->index(), request.index());
    EXPECT_EQ(encode(*read), encode(request)) << request.index();
  }
  for (const Reply& reply : replies()) {
    const auto read = decode_reply(encode(reply));
    ASSERT_TRUE(read) << reply.index();
    EXPECT_EQ(encode(*read), encode(reply)) << reply.index();
  }
  const auto created = std::get<Create>(*decode_request(encode(requests()[1])));
  EXPECT_EQ(created.place, NodePlace(3, model::Place::on_device(7)));
  EXPECT_EQ(created.bytes, 1ULL << 40);
  EXPECT_EQ(created.properties, some_properties());
  EXPECT_EQ(std::get<Welcome>(*decode_reply(encode(replies()[0]))).settings, "profile=gb200,devices=2");
}

// The bytes themselves: another build of the same version has to understand them.
TEST(Protocol, HasAStableForm) {
  const Bytes bytes = encode(Request(GiveBack{0x0102030405060708}));
  const unsigned char expected[] = {0x43, 0x55, 0x4d, 0x42, 4, 0, 3, 0, 8, 7, 6, 5, 4, 3, 2, 1};
  ASSERT_EQ(bytes.size(), sizeof expected);
  for (std::size_t index = 0; index < bytes.size(); ++index)
    EXPECT_EQ(std::to_integer<int>(bytes[index]), expected[index]) << index;
}

TEST(Protocol, RefusesWhatIsCutShortOrHasMoreBehindIt) {
  for (const Request& request : requests()) {
    const Bytes whole = encode(request);
    for (std::size_t length = 0; length < whole.size(); ++length)
      EXPECT_FALSE(decode_request(std::span(whole).first(length))) << request.index() << ' ' << length;
    Bytes more = whole;
    more.push_back(std::byte{0});
    EXPECT_FALSE(decode_request(more)) << request.index();
  }
  for (const Reply& reply : replies()) {
    const Bytes whole = encode(reply);
    for (std::size_t length = 0; length < whole.size(); ++length)
      EXPECT_FALSE(decode_reply(std::span(whole).first(length))) << reply.index() << ' ' << length;
  }
}

TEST(Protocol, RefusesOtherMarksVersionsAndKinds) {
  const Bytes whole = encode(Request(Hello{0}));
  for (const std::size_t changed : {0, 1, 2, 3, 4, 5, 6, 7}) {
    Bytes bytes = whole;
    bytes[changed] ^= std::byte{0x80};
    EXPECT_FALSE(decode_request(bytes)) << changed;
  }
  EXPECT_FALSE(decode_reply(whole)) << "a request is no reply";
  EXPECT_FALSE(decode_request(encode(Reply(Done{}))));
  Bytes newer = whole;
  newer[4] = std::byte{7};
  EXPECT_EQ(version_of(newer), 7);
  newer[0] = std::byte{0};
  EXPECT_FALSE(version_of(newer));
}

TEST(Protocol, RefusesValuesThatThereAreNot) {
  const auto refused_with = [](Bytes bytes, std::size_t at, int value) {
    bytes[at] = static_cast<std::byte>(value);
    return !decode_request(bytes);
  };
  const Bytes usage = encode(Request(AskUsage{}));
  EXPECT_TRUE(refused_with(usage, 12, 3)) << "a kind of place";
  EXPECT_FALSE(refused_with(usage, 12, 1));
  const Bytes token = encode(Request(ImportToken{}));
  EXPECT_TRUE(refused_with(token, 8, 2)) << "a kind of token";
  EXPECT_FALSE(refused_with(token, 8, 1));
  const Bytes exported = encode(Request(ExportDescriptor{{1}, true, 0}));
  EXPECT_TRUE(refused_with(exported, 20, 2)) << "a truth value";
  EXPECT_FALSE(refused_with(exported, 20, 0));
  EXPECT_TRUE(refused_with(exported, 11, 0xff)) << "a list longer than the message";
}

// What is accepted means something: it is the very bytes that its meaning is written as.
TEST(Protocol, ReadsNonsenseWithoutHarm) {
  std::mt19937_64 random(20);
  std::vector<Bytes> seeds;
  for (const Request& request : requests()) seeds.push_back(encode(request));
  for (const Reply& reply : replies()) seeds.push_back(encode(reply));
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    Bytes bytes = seeds[random() % seeds.size()];
    for (std::uint64_t change = random() % 4; change > 0; --change) {
      const std::size_t at = random() % bytes.size();
      if (random() % 4 == 0)
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::byte>(random()));
      else
        bytes[at] = static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (const auto request = decode_request(bytes)) {
      EXPECT_EQ(encode(*request), bytes);
      ++accepted;
    }
    if (const auto reply = decode_reply(bytes)) {
      EXPECT_EQ(encode(*reply), bytes);
      ++accepted;
    }
  }
  EXPECT_GT(accepted, 10'000);
}

TEST(BrokerCommandLine, CarriesTheTaskAndRefusesOthers) {
  const Task task{"/run/some machine", {2, 3, 4, 5, 6, 7}, "profile=gb200"};
  auto words = words_of(task);
  const auto read = task_of(words);
  ASSERT_TRUE(read);
  EXPECT_EQ(words_of(*read), words);
  for (std::size_t index = 2; index < words.size(); ++index) {
    auto wrong = words;
    wrong[index] += "x";
    EXPECT_FALSE(task_of(wrong)) << index;
  }
  words.pop_back();
  EXPECT_FALSE(task_of(words));
  EXPECT_FALSE(task_of({}));
}

}  // namespace
}  // namespace cuvmm::emulator::broker
