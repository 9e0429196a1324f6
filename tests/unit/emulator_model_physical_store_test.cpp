#include <gtest/gtest.h>

#include <vector>

#include "emulator/model/physical_store.hpp"
#include "emulator/model/rights.hpp"
#include "emulator_model_store.hpp"

namespace cuvmm::emulator::model {
namespace {

TEST(Ledger, CountsEachPlaceByItself) {
  Ledger ledger(2, 100, 50);
  EXPECT_TRUE(ledger.take(Place::on_device(1), 60));
  EXPECT_TRUE(ledger.take(Place::on_host(), 50));
  EXPECT_EQ(ledger.free(Place::on_device(0)), 100U);
  EXPECT_EQ(ledger.free(Place::on_device(1)), 40U);
  EXPECT_EQ(ledger.free(Place::on_host()), 0U);
  EXPECT_FALSE(ledger.take(Place::on_device(1), 41));
  EXPECT_EQ(ledger.used(Place::on_device(1)), 60U) << "a refusal takes nothing";
  EXPECT_TRUE(ledger.take(Place::on_device(1), 40));
  ledger.give_back(Place::on_device(1), 100);
  EXPECT_EQ(ledger.free(Place::on_device(1)), 100U);
}

TEST(PhysicalStore, KeepsMemoryWhileAnythingRefersToIt) {
  test::LedgerStore store(Ledger(1, 100, 0));
  const std::vector<std::uint64_t>& died = store.supply.given_back();
  Allocation* memory = store.create(Place::on_device(0), 30, {});
  ASSERT_NE(memory, nullptr);
  store.add_reference(*memory);
  store.drop_reference(*memory);
  EXPECT_TRUE(died.empty());
  EXPECT_EQ(store.live_allocations(), 1U);
  store.drop_reference(*memory);
  EXPECT_EQ(died, std::vector<std::uint64_t>{30});
  EXPECT_EQ(store.live_allocations(), 0U);
  EXPECT_EQ(store.ledger().free(Place::on_device(0)), 100U);
}

TEST(PhysicalStore, RefusesMoreThanThereIsAndNumbersAnew) {
  test::LedgerStore store(Ledger(1, 100, 0));
  EXPECT_EQ(store.create(Place::on_device(0), 101, {}), nullptr);
  EXPECT_EQ(store.create(Place::on_host(), 1, {}), nullptr);
  Allocation* first = store.create(Place::on_device(0), 100, {});
  ASSERT_NE(first, nullptr);
  const std::uint64_t id = first->id;
  store.drop_reference(*first);
  Allocation* second = store.create(Place::on_device(0), 100, {});
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second->id, id) << "an identity is never used twice";
}

TEST(Rights, AreNoneUntilGrantedAndEachOnesOwn) {
  Rights rights;
  const Accessor everybody[] = {Accessor::device(0), Accessor::device(max_devices - 1), Accessor::host()};
  for (const Accessor who : everybody) EXPECT_EQ(rights.get(who), abi::CU_MEM_ACCESS_FLAGS_PROT_NONE);
  rights.set(Accessor::device(0), abi::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  rights.set(Accessor::host(), abi::CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_TRUE(rights.allow(Accessor::device(0), true));
  EXPECT_TRUE(rights.allow(Accessor::device(0), false));
  EXPECT_FALSE(rights.allow(Accessor::host(), true));
  EXPECT_TRUE(rights.allow(Accessor::host(), false));
  EXPECT_FALSE(rights.allow(Accessor::device(max_devices - 1), false));
  rights.set(Accessor::device(0), abi::CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_FALSE(rights.allow(Accessor::device(0), true)) << "the later grant counts";
  rights.set(Accessor::device(0), abi::CU_MEM_ACCESS_FLAGS_PROT_NONE);
  rights.set(Accessor::host(), abi::CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(rights, Rights());
}

}  // namespace
}  // namespace cuvmm::emulator::model
