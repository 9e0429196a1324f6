// The broker's rules and state, alone.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "emulator/broker/machine_state.hpp"

namespace cuvmm::emulator::broker {
namespace {

constexpr std::uint64_t granule = std::uint64_t{2} << 20;
constexpr std::uint64_t device_bytes = 16 * granule;
const NodePlace device_0(0, model::Place::on_device(0));
const NodePlace host(0, model::Place::on_host());

struct State : MachineState {
  State() : MachineState({2, 2, device_bytes, 8 * granule, granule}) {}
  ClientId client(int node = 0) { return add_client(node).value(); }
  std::uint64_t created(ClientId client, std::uint64_t bytes = granule, const NodePlace& place = device_0) {
    const SharedAllocation* const made = create(client, place, bytes, {});
    EXPECT_NE(made, nullptr);
    return made == nullptr ? 0 : made->id;
  }
  // As the broker does: what is dead is zero at once.
  void reuse() {
    for (const DeadExtent& extent : take_dead_extents()) is_zero(extent);
  }
};

TEST(MachineState, HasClientsOnNodesThatThereAre) {
  State state;
  EXPECT_TRUE(state.add_client(0));
  EXPECT_TRUE(state.add_client(1));
  EXPECT_FALSE(state.add_client(2));
  EXPECT_FALSE(state.add_client(-1));
  EXPECT_EQ(state.clients(), 2U);
}

TEST(MachineState, CountsEachPlaceByItself) {
  State state;
  const auto client = state.client();
  (void)state.created(client, 3 * granule);
  EXPECT_EQ(state.free(device_0), device_bytes - 3 * granule);
  EXPECT_EQ(state.free({0, model::Place::on_device(1)}), device_bytes);
  EXPECT_EQ(state.free({1, model::Place::on_device(0)}), device_bytes);
  EXPECT_EQ(state.create(client, device_0, device_bytes - 2 * granule, {}), nullptr) << "too little is left";
  EXPECT_NE(state.create(client, device_0, device_bytes - 3 * granule, {}), nullptr);
}

TEST(MachineState, CreatesWholeGranulesAtPlacesOfTheClientsNode) {
  State state;
  const auto client = state.client();
  for (const std::uint64_t bytes : {std::uint64_t{0}, granule - 1, granule + 1, ~std::uint64_t{0} - granule + 1})
    EXPECT_EQ(state.create(client, device_0, bytes, {}), nullptr) << bytes;
  EXPECT_EQ(state.create(client, {1, model::Place::on_device(0)}, granule, {}), nullptr) << "another node's";
  EXPECT_EQ(state.create(client, {0, model::Place::on_device(2)}, granule, {}), nullptr) << "no such device";
  EXPECT_NE(state.create(client, device_0, granule, {}), nullptr);
}

TEST(MachineState, KeepsHostExtentsApart) {
  State state;
  const auto client = state.client();
  const std::uint64_t first = state.create(client, host, granule, {})->offset;
  EXPECT_EQ(state.create(client, host, granule, {})->offset, first + 2 * granule);
}

TEST(MachineState, KeepsMemoryWhileAClientHoldsItOnceHoweverOften) {
  State state;
  const auto one = state.client(), other = state.client();
  const auto id = state.created(one);
  const auto exported = state.add_export(one, {id}, true).value();
  EXPECT_NE(state.import_export(other, exported), nullptr);
  EXPECT_NE(state.import_export(other, exported), nullptr);
  state.close_export(exported);
  EXPECT_TRUE(state.give_back(one, id));
  EXPECT_FALSE(state.give_back(one, id)) << "it holds it no more";
  EXPECT_EQ(state.allocations(), 1U);
  EXPECT_TRUE(state.give_back(other, id)) << "once is enough";
  EXPECT_EQ(state.allocations(), 0U);
  EXPECT_EQ(state.free(device_0), device_bytes);
}

TEST(MachineState, UsesBytesAgainOnlyWhenTheyAreZero) {
  State state;
  const auto client = state.client();
  const SharedAllocation first = *state.create(client, device_0, granule, {});
  ASSERT_TRUE(state.give_back(client, first.id));
  EXPECT_NE(state.create(client, device_0, granule, {})->offset, first.offset);
  const auto dead = state.take_dead_extents();
  ASSERT_EQ(dead.size(), 1U);
  EXPECT_EQ(dead.front().offset, first.offset);
  EXPECT_EQ(dead.front().bytes, granule);
  state.is_zero(dead.front());
  EXPECT_EQ(state.create(client, device_0, granule, {})->offset, first.offset);
  EXPECT_TRUE(state.take_dead_extents().empty());
}

TEST(MachineState, TakesAllFromClientsThatAreGoneButNotWhatExportsKeep) {
  State state;
  const auto one = state.client(), other = state.client();
  const auto id = state.created(one);
  (void)state.created(one, 2 * granule);
  const auto exported = state.add_export(one, {id}, true).value();
  state.remove_client(one);
  EXPECT_EQ(state.free(device_0), device_bytes - granule);
  EXPECT_NE(state.import_export(other, exported), nullptr);
  state.close_export(exported);
  EXPECT_EQ(state.free(device_0), device_bytes - granule);
  state.remove_client(other);
  EXPECT_EQ(state.free(device_0), device_bytes);
  EXPECT_EQ(state.clients(), 0U);
}

TEST(MachineState, ExportsWhatTheExporterHoldsToItsNode) {
  State state;
  const auto one = state.client(), neighbour = state.client(), far = state.client(1);
  const auto id = state.created(one);
  EXPECT_FALSE(state.add_export(neighbour, {id}, true)) << "it is not its own";
  EXPECT_FALSE(state.add_export(one, {}, true)) << "of nothing";
  EXPECT_FALSE(state.add_export(one, {id, 999}, true)) << "one of them is not there";
  const auto exported = state.add_export(one, {id}, true).value();
  const auto held_only = state.add_export(one, {id}, false).value();
  EXPECT_EQ(state.import_export(far, exported), nullptr);
  EXPECT_EQ(state.import_export(neighbour, held_only), nullptr);
  EXPECT_EQ(state.import_export(neighbour, 999), nullptr);
  EXPECT_EQ(state.import_export(neighbour, exported)->id, id);
  EXPECT_EQ(state.importable_exports_of(one), 1U);
  EXPECT_EQ(state.exports(), 2U);
}

TEST(MachineState, PoolsLiveAsLongAsAClientHasThemOrAnExportIsOpen) {
  State state;
  const auto owner = state.client(), other = state.client();
  const auto pool = state.add_pool(owner, device_0).value();
  const auto exported = state.add_pool_export(owner, pool).value();
  EXPECT_FALSE(state.add_pool_export(other, pool)) << "it does not have it";
  EXPECT_TRUE(state.drop_pool(owner, pool));
  EXPECT_FALSE(state.drop_pool(owner, pool));
  EXPECT_EQ(state.pools(), 1U) << "its export is open";
  EXPECT_EQ(state.import_pool(other, exported)->pool, pool);
  EXPECT_EQ(state.import_pool(other, exported)->place, device_0) << "again";
  state.close_export(exported);
  EXPECT_FALSE(state.import_pool(other, exported));
  EXPECT_EQ(state.pools(), 1U);
  state.remove_client(other);
  EXPECT_EQ(state.pools(), 0U);
}

TEST(MachineState, PoolsAreOfTheClientsNode) {
  State state;
  const auto owner = state.client(), foreign = state.client(1);
  EXPECT_FALSE(state.add_pool(owner, {1, model::Place::on_device(0)}));
  EXPECT_FALSE(state.add_pool(owner, {0, model::Place::on_device(9)}));
  const auto pool = state.add_pool(owner, device_0).value();
  const auto exported = state.add_pool_export(owner, pool).value();
  EXPECT_FALSE(state.import_pool(foreign, exported));
  EXPECT_TRUE(state.import_pool(state.client(), exported));
}

TEST(MachineState, ExportsOfPoolsAndOfMemoryAreNotMixedUp) {
  State state;
  const auto owner = state.client();
  const auto of_pool = state.add_pool_export(owner, state.add_pool(owner, device_0).value()).value();
  const auto of_memory = state.add_export(owner, {state.created(owner)}, true).value();
  EXPECT_TRUE(state.is_of_pool(of_pool) && !state.is_of_memory(of_pool));
  EXPECT_TRUE(state.is_of_memory(of_memory) && !state.is_of_pool(of_memory));
  EXPECT_EQ(state.import_export(owner, of_pool), nullptr);
  EXPECT_FALSE(state.import_pool(owner, of_memory));
  EXPECT_NE(state.import_export(owner, of_memory), nullptr);
  EXPECT_TRUE(state.import_pool(owner, of_pool));
}

TEST(MachineState, PoolsKeepTheMemoryOfTheirRangesForWhoHasThePool) {
  State state;
  const auto owner = state.client(), other = state.client(), stranger = state.client();
  const auto pool = state.add_pool(owner, device_0).value();
  const auto exported = state.add_pool_export(owner, pool).value();
  (void)state.import_pool(other, exported);
  const auto first = state.created(owner), second = state.created(owner);
  const auto foreign = state.created(stranger);
  EXPECT_FALSE(state.add_pool_range(owner, {pool, {foreign}, 0, 1})) << "it does not hold that";
  EXPECT_FALSE(state.add_pool_range(owner, {pool, {}, 0, 1}));
  EXPECT_FALSE(state.add_pool_range(stranger, {pool, {foreign}, 0, 1})) << "it does not have the pool";
  const auto token = state.add_pool_range(owner, {pool, {first, second}, 4096, granule}).value();
  EXPECT_EQ(state.add_pool_range(owner, {pool, {first, second}, 4096, granule}), token) << "the same each time";
  EXPECT_FALSE(state.pool_range(stranger, pool, token));
  EXPECT_FALSE(state.pool_range(other, pool, token + 1));
  EXPECT_EQ(state.pool_range(other, pool, token)->pieces, 2U);
  EXPECT_EQ(state.pool_range(other, pool, token)->offset, 4096U);
  state.remove_client(owner);
  EXPECT_EQ(state.allocations(), 3U) << "the pool keeps two of them";
  EXPECT_EQ(state.open_pool_memory(other, {pool, token, 0})->id, first);
  EXPECT_EQ(state.open_pool_memory(other, {pool, token, 1})->id, second);
  EXPECT_EQ(state.open_pool_memory(other, {pool, token, 2}), nullptr);
  EXPECT_EQ(state.open_pool_memory(stranger, {pool, token, 1}), nullptr);
  state.give_back(other, first);
  EXPECT_EQ(state.allocations(), 3U);
  state.drop_pool(other, pool);
  EXPECT_EQ(state.allocations(), 3U) << "its export is open";
  state.close_export(exported);
  EXPECT_EQ(state.allocations(), 2U) << "the importer holds the second";
}

TEST(MachineState, TokensReachAsFarAsTheirKindAndKeepNothing) {
  State state;
  const auto one = state.client(), neighbour = state.client(), far = state.client(1);
  const auto id = state.created(one);
  EXPECT_FALSE(state.add_token(neighbour, TokenKind::fabric, id)) << "it is not its own";
  const auto fabric = state.add_token(one, TokenKind::fabric, id).value();
  const auto ipc = state.add_token(one, TokenKind::ipc, id).value();
  EXPECT_EQ(state.add_token(one, TokenKind::fabric, id), fabric) << "the same one each time";
  EXPECT_EQ(state.import_token(far, TokenKind::ipc, ipc), nullptr);
  EXPECT_EQ(state.import_token(far, TokenKind::fabric, ipc), nullptr) << "of the other kind";
  EXPECT_NE(state.import_token(neighbour, TokenKind::ipc, ipc), nullptr);
  EXPECT_NE(state.import_token(far, TokenKind::fabric, fabric), nullptr);
  for (const auto client : {one, neighbour, far}) EXPECT_TRUE(state.give_back(client, id));
  EXPECT_EQ(state.import_token(far, TokenKind::fabric, fabric), nullptr);
  EXPECT_EQ(state.import_token(neighbour, TokenKind::ipc, ipc), nullptr);
  const auto next = state.created(one);
  EXPECT_NE(state.add_token(one, TokenKind::fabric, next), fabric) << "never used twice";
}

// Against a reference that is as simple as it can be: who holds what, and what exports keep.
RC_GTEST_PROP(MachineStateProperty, FreesWhatNobodyHasAndNothingElse, ()) {
  State state;
  std::map<MachineState::ClientId, std::set<std::uint64_t>> holds;
  std::map<MachineState::ExportId, std::uint64_t> exports;
  std::map<std::uint64_t, std::uint64_t> bytes;
  const auto any_client = [&] {
    return std::next(holds.begin(), *rc::gen::inRange<long>(0, static_cast<long>(holds.size())));
  };
  const int steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) {
    if (holds.empty()) holds[state.client()];
    const auto client = any_client();
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
        holds[state.client()];
        break;
      case 1: {
        const std::uint64_t size = *rc::gen::inRange<std::uint64_t>(1, 5) * granule;
        if (const SharedAllocation* const made = state.create(client->first, device_0, size, {}))
          bytes[made->id] = size, client->second.insert(made->id);
        break;
      }
      case 2:
        if (!client->second.empty()) {
          const auto id = *client->second.begin();
          RC_ASSERT(state.give_back(client->first, id));
          client->second.erase(id);
        }
        break;
      case 3:
        if (!client->second.empty()) {
          const auto id = *client->second.rbegin();
          exports[state.add_export(client->first, {id}, true).value()] = id;
        }
        break;
      case 4:
        if (!exports.empty()) {
          const auto [number, id] = *exports.begin();
          if (*rc::gen::arbitrary<bool>()) {
            RC_ASSERT(state.import_export(client->first, number)->id == id);
            client->second.insert(id);
          } else {
            state.close_export(number);
            exports.erase(number);
          }
        }
        break;
      default:
        state.remove_client(client->first);
        holds.erase(client);
    }
    state.reuse();
    std::set<std::uint64_t> alive;
    for (const auto& [number, ids] : holds) alive.insert(ids.begin(), ids.end());
    for (const auto& [number, id] : exports) alive.insert(id);
    std::uint64_t used = 0;
    for (const std::uint64_t id : alive) used += bytes.at(id);
    RC_ASSERT(state.allocations() == alive.size());
    RC_ASSERT(state.free(device_0) == device_bytes - used);
  }
}

}  // namespace
}  // namespace cuvmm::emulator::broker
