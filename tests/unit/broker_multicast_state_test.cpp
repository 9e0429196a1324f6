// Multicast objects in the broker: who may do what with them, and what they keep.
#include <gtest/gtest.h>

#include "emulator/broker/machine_state.hpp"

namespace cuvmm::emulator::broker {
namespace {

using model::BindOutcome;
using model::JoinOutcome;

constexpr std::uint64_t granule = std::uint64_t{2} << 20;
constexpr std::uint64_t device_bytes = 16 * granule;
const NodePlace device_0(0, model::Place::on_device(0));
const NodePlace device_1(0, model::Place::on_device(1));

class MulticastState : public testing::Test {
 protected:
  static Properties handles(int types) {
    Properties properties;
    properties.handle_types = types;
    return properties;
  }
  std::uint64_t object(std::uint32_t devices, int types = abi::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return state_.create_multicast(client_, {devices, 2 * granule, handles(types)}).id;
  }
  std::uint64_t memory(const NodePlace& place = device_0) { return state_.create(client_, place, granule, {})->id; }

  MachineState state_{{2, 2, device_bytes, 8 * granule, granule, 1}};
  MachineState::ClientId client_ = state_.add_client(0).value();
};

TEST_F(MulticastState, OnlyWhoHasAnObjectMayUseIt) {
  const std::uint64_t id = object(1);
  const auto stranger = state_.add_client(0).value();
  EXPECT_FALSE(state_.join(stranger, {id, 0}));
  EXPECT_FALSE(state_.multicast(stranger, {id, 0, 0, 0}));
  EXPECT_FALSE(state_.unbind(stranger, {id, 0, 0, granule}));
  EXPECT_FALSE(state_.join(client_, {memory(), 0})) << "memory is no object";
  EXPECT_FALSE(state_.join(client_, {id, 2})) << "no such device";
  EXPECT_FALSE(state_.join(client_, {id, -1}));
  EXPECT_EQ(state_.join(client_, {id, 0}), JoinOutcome::joined);
  const std::uint64_t bound = memory();
  EXPECT_FALSE(state_.bind(stranger, {id, 0, 0, granule, bound, 0}));
  EXPECT_EQ(state_.bind(client_, {id, 0, 0, granule, bound, 0}), BindOutcome::bound);
}

TEST_F(MulticastState, BindsWhatFitsAndIsTheClients) {
  const std::uint64_t id = object(1);
  ASSERT_EQ(state_.join(client_, {id, 0}), JoinOutcome::joined);
  const std::uint64_t here = memory(), elsewhere = memory(device_1);
  EXPECT_FALSE(state_.bind(client_, {id, 0, 0, granule, elsewhere, 0})) << "another device's memory";
  EXPECT_FALSE(state_.bind(client_, {id, 0, 0, granule, id, 0})) << "an object is no memory";
  EXPECT_FALSE(state_.bind(client_, {id, 0, 0, granule, 999, 0})) << "no memory at all";
  EXPECT_FALSE(state_.bind(client_, {id, 0, 0, 0, here, 0}));
  EXPECT_FALSE(state_.bind(client_, {id, 0, 0, 2 * granule, here, 0})) << "beyond the memory";
  EXPECT_FALSE(state_.bind(client_, {id, 0, 0, granule, here, granule}));
  EXPECT_FALSE(state_.bind(client_, {id, 0, 2 * granule, granule, here, 0})) << "beyond the object";
  EXPECT_FALSE(state_.bind(client_, {id, 0, ~std::uint64_t{0}, granule, here, 0}));
  EXPECT_EQ(state_.bind(client_, {id, 0, granule, granule, here, 0}), BindOutcome::bound);
}

TEST_F(MulticastState, AnObjectKeepsWhatIsBoundAndGoesWithItsLastHolder) {
  const std::uint64_t id = object(1), bound = memory();
  ASSERT_EQ(state_.join(client_, {id, 0}), JoinOutcome::joined);
  ASSERT_EQ(state_.bind(client_, {id, 0, 0, granule, bound, 0}), BindOutcome::bound);
  const auto other = state_.add_client(0).value();
  const auto exported = state_.add_export(client_, {id}, true);
  ASSERT_EQ(state_.import_export(other, exported.value())->id, id);
  state_.remove_client(client_);
  EXPECT_EQ(state_.free(device_0), device_bytes - granule);
  state_.close_export(exported.value());
  EXPECT_TRUE(state_.is_bound(bound));
  EXPECT_TRUE(state_.give_back(other, id));
  EXPECT_EQ(state_.free(device_0), device_bytes);
  EXPECT_EQ(state_.multicast_objects(), 0U);
  EXPECT_FALSE(state_.is_bound(bound));
}

TEST_F(MulticastState, UnbindingLetsMemoryGo) {
  const std::uint64_t id = object(1), bound = memory();
  ASSERT_EQ(state_.join(client_, {id, 0}), JoinOutcome::joined);
  ASSERT_EQ(state_.bind(client_, {id, 0, 0, granule, bound, 0}), BindOutcome::bound);
  ASSERT_TRUE(state_.give_back(client_, bound));
  EXPECT_EQ(state_.free(device_0), device_bytes - granule);
  EXPECT_EQ(state_.unbind(client_, {id, 0, 0, granule}), bound);
  EXPECT_EQ(state_.free(device_0), device_bytes);
  EXPECT_FALSE(state_.unbind(client_, {id, 0, 0, granule}));
}

TEST_F(MulticastState, TellsWhetherOthersCouldJoin) {
  const std::uint64_t id = object(2);
  const auto others = [&] { return state_.multicast(client_, {id, 0, 0, 0})->others; };
  EXPECT_FALSE(others());
  const auto exported = state_.add_export(client_, {id}, true);
  EXPECT_TRUE(others()) << "a descriptor is open";
  const auto other = state_.add_client(0).value();
  ASSERT_NE(state_.import_export(other, exported.value()), nullptr);
  state_.close_export(exported.value());
  EXPECT_TRUE(others()) << "another process has it";
  state_.remove_client(other);
  EXPECT_FALSE(others());
  const std::uint64_t wide = object(2, abi::CU_MEM_HANDLE_TYPE_FABRIC);
  EXPECT_FALSE(state_.multicast(client_, {wide, 0, 0, 0})->others);
  ASSERT_TRUE(state_.add_token(client_, TokenKind::fabric, wide));
  EXPECT_TRUE(state_.multicast(client_, {wide, 0, 0, 0})->others) << "a fabric handle is somewhere";
  EXPECT_EQ(state_.multicast(client_, {wide, 0, 0, 0})->in_reach, 4);
  EXPECT_EQ(state_.multicast(client_, {id, 0, 0, 0})->in_reach, 2);
}

TEST_F(MulticastState, TellsOfBindsInParts) {
  constexpr std::uint64_t binds = 1500;
  MachineState state({1, 1, 2 * binds * granule, granule, granule, 1});
  const auto client = state.add_client(0).value();
  const std::uint64_t id = state.create_multicast(client, {1, binds * granule, {}}).id;
  ASSERT_EQ(state.join(client, {id, 0}), JoinOutcome::joined);
  const std::uint64_t bound = state.create(client, device_0, binds * granule, {})->id;
  for (std::uint64_t index = 0; index < binds; ++index)
    ASSERT_EQ(state.bind(client, {id, 0, index * granule, granule, bound, index * granule}), BindOutcome::bound);
  std::uint64_t told = 0;
  for (bool more = true; more;) {
    const auto facts = state.multicast(client, {id, 0, binds * granule, told});
    ASSERT_TRUE(facts);
    EXPECT_LE(encode(Reply(*facts)).size(), most_message_bytes);
    for (std::size_t at = 0; at < facts->binds.size(); at += Multicast::fields_of_bind, ++told) {
      ASSERT_EQ(facts->binds[at + 1], told * granule);
      ASSERT_EQ(facts->binds[at + 5], told * granule) << "where its bytes are";
    }
    more = facts->more;
  }
  EXPECT_EQ(told, binds);
  EXPECT_TRUE(state.multicast(client, {id, 0, binds * granule, binds})->binds.empty());
}

TEST_F(MulticastState, AFabricHandleOfALostObjectStandsForANewOne) {
  const std::uint64_t id = object(1, abi::CU_MEM_HANDLE_TYPE_FABRIC);
  const std::uint64_t token = state_.add_token(client_, TokenKind::fabric, id).value();
  ASSERT_EQ(state_.join(client_, {id, 0}), JoinOutcome::joined);
  EXPECT_FALSE(state_.is_lost_multicast(TokenKind::fabric, token));
  ASSERT_TRUE(state_.give_back(client_, id));
  EXPECT_TRUE(state_.is_lost_multicast(TokenKind::fabric, token));
  EXPECT_EQ(state_.import_token(client_, TokenKind::fabric, token), nullptr);
  const SharedAllocation* const made = state_.make_again(client_, token);
  ASSERT_NE(made, nullptr);
  EXPECT_NE(made->id, id);
  EXPECT_EQ(made->devices, 1U);
  EXPECT_EQ(state_.multicast(client_, {made->id, 0, 0, 0})->missing, 1U);
  const auto other = state_.add_client(1).value();
  EXPECT_EQ(state_.import_token(other, TokenKind::fabric, token)->id, made->id);
}

}  // namespace
}  // namespace cuvmm::emulator::broker
