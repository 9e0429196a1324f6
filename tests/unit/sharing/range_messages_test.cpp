#include "sharing/range_messages.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace cuvmm::sharing {
namespace {

using Bytes = std::vector<std::byte>;

AttachRequest request_for(const std::string& name, AccessRights rights) {
  return {name, rights, Locality::here()};
}

// Each beginning of the bytes, and the bytes with one more, are refused.
void expect_exact(const Bytes& bytes, const std::function<bool(const Bytes&)>& reads) {
  EXPECT_TRUE(reads(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(reads(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)))) << size;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(reads(longer));
}

Standing some_standing() {
  return {.publication = 0x0123456789abcdef, .generation = 7, .bytes = 10, .extent = 4096, .chunks = 3};
}

ChunkFacts some_chunk(std::uint64_t offset) {
  ChunkFacts chunk{.offset = offset, .bytes = 4096, .location = {LocationKind::device, 5}};
  chunk.device[0] = std::byte{0x42};
  chunk.compression = true;
  return chunk;
}

TEST(RangeMessages, RequestsComeBackAsTheyWere) {
  const Locality locality{"host", "boot", "26:1", "machine", 3};
  const Bytes attach = encode(AttachRequest{"weights", AccessRights::read_write, locality});
  const auto read = decode_attach_request(attach);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, "weights");
  EXPECT_EQ(read->rights, AccessRights::read_write);
  EXPECT_EQ(read->locality, locality);
  expect_exact(attach, [](const Bytes& bytes) { return decode_attach_request(bytes).has_value(); });
  expect_exact(encode(FetchRequest{9}), [](const Bytes& bytes) { return decode_fetch_request(bytes).has_value(); });
  EXPECT_EQ(decode_fetch_request(encode(FetchRequest{9}))->first, 9U);
  expect_exact(encode_mapped(11), [](const Bytes& bytes) { return decode_mapped(bytes) == 11U; });
}

TEST(RangeMessages, RequestsForNoNameOrNoRightsAreRefused) {
  EXPECT_FALSE(decode_attach_request(encode(request_for("", AccessRights::read))));
  EXPECT_FALSE(decode_attach_request(encode(request_for("a", AccessRights::none))));
  EXPECT_FALSE(decode_attach_request(encode(request_for("a", static_cast<AccessRights>(2)))));
  EXPECT_TRUE(decode_attach_request(encode(request_for("a", AccessRights::read))));
  EXPECT_FALSE(decode_attach_request(encode(request_for(std::string(256, 'a'), AccessRights::read))));
  EXPECT_TRUE(decode_attach_request(encode(request_for(std::string(255, 'a'), AccessRights::read))));
}

TEST(RangeMessages, StandingAndTermsComeBackAsTheyWere) {
  for (const auto withdrawn : {std::optional<Withdrawal>(), std::optional(Withdrawal::ended),
                               std::optional(Withdrawal::sleep), std::optional(Withdrawal::replaced)}) {
    Standing standing = some_standing();
    standing.withdrawn = withdrawn;
    EXPECT_EQ(decode_standing(encode(standing)), standing);
    const auto terms = decode_terms(encode(Terms{standing, AccessRights::read}));
    ASSERT_TRUE(terms);
    EXPECT_EQ(terms->standing, standing);
    EXPECT_EQ(terms->rights, AccessRights::read);
  }
  expect_exact(encode(some_standing()), [](const Bytes& bytes) { return decode_standing(bytes).has_value(); });
  expect_exact(encode(Terms{some_standing(), AccessRights::read}),
               [](const Bytes& bytes) { return decode_terms(bytes).has_value(); });
}

TEST(RangeMessages, ContentBehindTheEndOfTheAddressesIsRefused) {
  Standing standing = some_standing();
  standing.bytes = standing.extent + 1;
  EXPECT_FALSE(decode_standing(encode(standing)));
  standing.bytes = standing.extent;
  EXPECT_TRUE(decode_standing(encode(standing)));
  standing.withdrawn = static_cast<Withdrawal>(4);
  EXPECT_FALSE(decode_standing(encode(standing)));
}

TEST(RangeMessages, ChunksComeBackAsTheyWere) {
  ChunkTable table{.publication = 12, .first = 253};
  table.chunks = {some_chunk(0), some_chunk(8192)};
  table.chunks[1].type = HandleType::fabric;
  table.chunks[1].fabric.fill(std::byte{0x77});
  const auto read = decode_chunk_table(encode(table));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->publication, 12U);
  EXPECT_EQ(read->first, 253U);
  ASSERT_EQ(read->chunks.size(), 2U);
  for (std::size_t index = 0; index < 2; ++index) {
    EXPECT_EQ(read->chunks[index].offset, table.chunks[index].offset);
    EXPECT_EQ(read->chunks[index].bytes, table.chunks[index].bytes);
    EXPECT_EQ(read->chunks[index].location, table.chunks[index].location);
    EXPECT_EQ(read->chunks[index].device, table.chunks[index].device);
    EXPECT_EQ(read->chunks[index].compression, true);
    EXPECT_EQ(read->chunks[index].type, table.chunks[index].type);
    EXPECT_EQ(read->chunks[index].fabric, table.chunks[index].fabric);
  }
}

TEST(RangeMessages, AFullTableIsOnePacketOfFabricHandlesToo) {
  ChunkTable table{.publication = 1};
  for (std::size_t index = 0; index < most_chunks_at_once; ++index) {
    table.chunks.push_back(some_chunk(index * 4096));
    table.chunks.back().type = HandleType::fabric;
  }
  EXPECT_LE(encode(table).size(), range_message_limits.bytes);
}

TEST(RangeMessages, ChunksThatCannotBeAreRefused) {
  const auto reads = [](const std::function<void(ChunkTable&)>& change) {
    ChunkTable table{.publication = 1};
    table.chunks = {some_chunk(0), some_chunk(4096)};
    change(table);
    return decode_chunk_table(encode(table)).has_value();
  };
  EXPECT_TRUE(reads([](ChunkTable&) {}));
  EXPECT_TRUE(reads([](ChunkTable& table) { table.chunks[0].offset = 8192; })) << "what fills a hole comes later";
  EXPECT_FALSE(reads([](ChunkTable& table) { table.chunks[0].bytes = 0; }));
  EXPECT_FALSE(reads([](ChunkTable& table) { table.chunks[1].bytes = UINT64_MAX; })) << "the end is no number";
  EXPECT_FALSE(reads([](ChunkTable& table) { table.chunks[0].location.kind = LocationKind::host; }));
  EXPECT_TRUE(reads([](ChunkTable& table) { table.chunks[0].location.kind = LocationKind::host_numa; }));
  EXPECT_FALSE(reads([](ChunkTable& table) { table.chunks[0].type = HandleType::win32; }));
}

TEST(RangeMessages, ReasonsHaveNames) {
  EXPECT_EQ(to_string(Withdrawal::ended), "ended");
  EXPECT_EQ(to_string(Withdrawal::sleep), "sleep");
  EXPECT_EQ(to_string(Withdrawal::replaced), "replaced");
}

}  // namespace
}  // namespace cuvmm::sharing
