// What is refused of a collective's arguments, and the same put right.
#include "gpu/collective_checks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace cuvmm::gpu {
namespace {

constexpr CollectiveShape shape{4, 128};

// Addresses are looked at, never touched.
template <class T>
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

Team team_of_two() {
  Team team{};
  team.rank = 1;
  team.ranks = 2;
  team.blocks = 8;
  team.lines_per_block = 256;
  team.staging_packs = 100;
  team.multicast_arrivals = at<Arrivals>(0x9000);
  return team;
}
AllReduce<float> sound() {
  AllReduce<float> call{};
  call.team = team_of_two();
  call.count = 64;
  call.inputs[0] = at<const float>(0x10000);
  call.inputs[1] = at<const float>(0x20000);
  call.outputs[0] = at<float>(0x30000);
  call.outputs[1] = at<float>(0x40000);
  call.multicast_input = at<const float>(0x50000);
  call.multicast_output = at<float>(0x60000);
  return call;
}

constexpr std::array all_ways{
    AllReduceWay::flagged,  AllReduceWay::staged_one_shot,   AllReduceWay::staged_two_shot,  AllReduceWay::one_shot,
    AllReduceWay::two_shot, AllReduceWay::multimem_one_shot, AllReduceWay::multimem_two_shot};

std::string rule_of(const std::optional<Failure>& refusal) {
  if (!refusal) return "";
  EXPECT_EQ(refusal->kind, ErrorKind::invalid_use);
  EXPECT_FALSE(refusal->way_out.empty());
  EXPECT_FALSE(refusal->arguments.empty());
  return refusal->rule;
}
void expect_refused(const std::optional<Failure>& refusal, const std::string& words) {
  EXPECT_NE(rule_of(refusal).find(words), std::string::npos) << "'" << rule_of(refusal) << "' lacks '" << words << "'";
}

TEST(AllReduceChecks, SoundArgumentsPass) {
  for (const AllReduceWay way : all_ways) EXPECT_EQ(rule_of(refusal_of(sound(), way, shape)), "") << name_of(way);
}

TEST(AllReduceChecks, TeamAndShape) {
  auto call = sound();
  call.team.rank = 2;
  expect_refused(refusal_of(call, AllReduceWay::two_shot, shape), "A team has 1 to 32 ranks");
  call = sound();
  call.team.ranks = 33;
  expect_refused(refusal_of(call, AllReduceWay::two_shot, shape), "A team has 1 to 32 ranks");
  expect_refused(refusal_of(sound(), AllReduceWay::two_shot, {9, 128}), "1 to 8 blocks of 1 to 512 threads");
  EXPECT_EQ(rule_of(refusal_of(sound(), AllReduceWay::two_shot, {8, 512})), "");
  for (const AllReduceWay way : all_ways) {
    expect_refused(refusal_of(sound(), way, {0, 128}), "1 to 8 blocks");
    expect_refused(refusal_of(sound(), way, {1, 0}), "1 to 8 blocks");
    expect_refused(refusal_of(sound(), way, {1, 513}), "1 to 8 blocks");
  }
}

TEST(AllReduceChecks, RoomForSmallContent) {
  auto call = sound();
  call.count = 4 * 256 * 2 + 1;
  expect_refused(refusal_of(call, AllReduceWay::flagged, shape), "room for 2048 values");
  --call.count;
  EXPECT_EQ(rule_of(refusal_of(call, AllReduceWay::flagged, shape)), "");
  call.count = 401;
  expect_refused(refusal_of(call, AllReduceWay::staged_one_shot, shape), "room for 400 values");
  --call.count;
  EXPECT_EQ(rule_of(refusal_of(call, AllReduceWay::staged_one_shot, shape)), "");
}

TEST(AllReduceChecks, AddressesOfThoseThatAreUsed) {
  auto call = sound();
  call.inputs[0] = at<const float>(0x10002);
  call.inputs[1] = at<const float>(0x20002);
  for (const AllReduceWay way : all_ways)
    expect_refused(refusal_of(call, way, shape), "An address of values of 4 bytes is a multiple of that");
  call = sound();
  call.inputs[0] = nullptr;
  expect_refused(refusal_of(call, AllReduceWay::one_shot, shape), "not null");
  EXPECT_EQ(rule_of(refusal_of(call, AllReduceWay::flagged, shape)), "") << "others' inputs are not used";
  call.outputs[0] = nullptr;
  EXPECT_EQ(rule_of(refusal_of(call, AllReduceWay::staged_one_shot, shape)), "");
  expect_refused(refusal_of(call, AllReduceWay::staged_two_shot, shape), "not null");
}

TEST(AllReduceChecks, RanksDivideContentAlike) {
  auto call = sound();
  call.inputs[0] = at<const float>(0x10004);
  expect_refused(refusal_of(call, AllReduceWay::one_shot, shape), "alike modulo 16");
  call.inputs[1] = at<const float>(0x20014);
  EXPECT_EQ(rule_of(refusal_of(call, AllReduceWay::one_shot, shape)), "");
  call.outputs[0] = at<float>(0x30008);
  expect_refused(refusal_of(call, AllReduceWay::two_shot, shape), "alike modulo 16");
  EXPECT_EQ(rule_of(refusal_of(call, AllReduceWay::one_shot, shape)), "") << "others' outputs are not used";
}

TEST(AllReduceChecks, InPlaceOnlyWhereNobodyStillReads) {
  auto call = sound();
  call.outputs[1] = at<float>(0x20000);
  for (const AllReduceWay way : {AllReduceWay::one_shot, AllReduceWay::multimem_one_shot})
    expect_refused(refusal_of(call, way, shape), "must not overlap");
  for (const AllReduceWay way : {AllReduceWay::flagged, AllReduceWay::staged_one_shot, AllReduceWay::staged_two_shot,
                                 AllReduceWay::two_shot, AllReduceWay::multimem_two_shot})
    EXPECT_EQ(rule_of(refusal_of(call, way, shape)), "") << name_of(way);
  call.outputs[1] = at<float>(0x20010);
  for (const AllReduceWay way : all_ways) EXPECT_NE(rule_of(refusal_of(call, way, shape)), "") << name_of(way);
  call.outputs[1] = at<float>(0x20000 + 64 * 4);
  for (const AllReduceWay way : all_ways) EXPECT_EQ(rule_of(refusal_of(call, way, shape)), "") << name_of(way);
}

TEST(AllReduceChecks, MulticastAddresses) {
  auto call = sound();
  call.multicast_output = nullptr;
  expect_refused(refusal_of(call, AllReduceWay::multimem_two_shot, shape), "The multicast address");
  EXPECT_EQ(rule_of(refusal_of(call, AllReduceWay::multimem_one_shot, shape)), "");
  call.multicast_input = at<const float>(0x50004);
  expect_refused(refusal_of(call, AllReduceWay::multimem_one_shot, shape), "The multicast address");
  EXPECT_EQ(rule_of(refusal_of(call, AllReduceWay::two_shot, shape)), "") << "not used";
  call = sound();
  call.team.multicast_arrivals = nullptr;
  expect_refused(refusal_of(call, AllReduceWay::multimem_two_shot, shape), "The ranks meet through the multicast");
  EXPECT_EQ(rule_of(refusal_of(call, AllReduceWay::staged_two_shot, shape)), "");
}

TEST(BroadcastChecks, RootAndOverlap) {
  Broadcast call{};
  call.team = team_of_two();
  call.bytes = 100;
  call.input = at<const std::uint8_t>(0x10000);
  call.outputs[1] = at<std::uint8_t>(0x10000);
  call.multicast_output = at<std::uint8_t>(0x60000);
  EXPECT_EQ(rule_of(refusal_of(call, shape, false)), "");
  EXPECT_EQ(rule_of(refusal_of(call, shape, true)), "");
  call.root = 2;
  expect_refused(refusal_of(call, shape, false), "The root is one of the ranks");
  call.root = 1;
  call.outputs[1] = at<std::uint8_t>(0x10001);
  expect_refused(refusal_of(call, shape, false), "do not overlap");
  call.outputs[1] = at<std::uint8_t>(0x10000 + 100);
  EXPECT_EQ(rule_of(refusal_of(call, shape, false)), "");
  expect_refused(refusal_of(call, shape, true), "The multicast address");
}

TEST(AllGatherChecks, OwnPartOrElsewhere) {
  AllGather call{};
  call.team = team_of_two();
  call.bytes = 64;
  call.inputs[1] = at<const std::uint8_t>(0x10040);
  call.outputs[1] = at<std::uint8_t>(0x10000);
  EXPECT_EQ(rule_of(refusal_of(call, shape, false)), "") << "its own part";
  expect_refused(refusal_of(call, shape, true), "The multicast address");
  call.inputs[1] = at<const std::uint8_t>(0x10000);
  expect_refused(refusal_of(call, shape, false), "own part of the output");
  call.inputs[1] = at<const std::uint8_t>(0x10080);
  EXPECT_EQ(rule_of(refusal_of(call, shape, false)), "");
}

}  // namespace
}  // namespace cuvmm::gpu
