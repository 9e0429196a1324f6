#include "cuvmm/sharing/locality.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "cuvmm/driver.hpp"
#include "emulator/configuration.hpp"

namespace cuvmm::sharing {
namespace {

TEST(Locality, IsTheSameForAllOfThisHost) {
  const Locality here = Locality::here();
  EXPECT_FALSE(here.host.empty());
  EXPECT_EQ(here, Locality::here());
  EXPECT_TRUE(same_host(here, Locality::here()));
  const auto sent = Locality::from_bytes(here.to_bytes());
  ASSERT_TRUE(sent);
  EXPECT_EQ(*sent, here);
  auto bytes = here.to_bytes();
  bytes.pop_back();
  EXPECT_FALSE(Locality::from_bytes(bytes));
}

TEST(Locality, WithATextThatIsTooLongIsNotSent) {
  const std::string longest(2048, 'x');
  const std::string too_long(2049, 'x');
  for (const Locality& each : {Locality{longest, "", ""}, Locality{"", longest, ""}, Locality{"", "", longest},
                               Locality{"", "", "", longest, 3}})
    EXPECT_EQ(Locality::from_bytes(each.to_bytes()), each);
  for (const Locality& each : {Locality{too_long, "", ""}, Locality{"", too_long, ""}, Locality{"", "", too_long},
                               Locality{"", "", "", too_long, 3}})
    EXPECT_THROW(static_cast<void>(each.to_bytes()), InvalidUse);
}

TEST(Locality, C19_RanksOnDifferentHostsAreNamedWithTheirHosts) {
  const Locality one{"anna", "boot-1", "26:1"};
  const Locality other{"berta", "boot-2", "26:1"};
  EXPECT_FALSE(same_kernel(one, other));
  const std::vector ranks{one, one, other};
  try {
    require_same_host(ranks);
    ADD_FAILURE() << "accepted";
  } catch (const NotSupported& error) {
    const std::string text = error.what();
    for (const std::string_view word : {"Rank 0", "anna", "rank 2", "berta", "fabric"})
      EXPECT_NE(text.find(word), std::string::npos) << word << ": " << text;
  }
  EXPECT_NO_THROW(require_same_host(std::vector{one, one, one}));
  EXPECT_NO_THROW(require_same_host({}));
}

TEST(Locality, C19_HostsOfOneNameAreToldApartByTheirBoots) {
  EXPECT_FALSE(same_host({"node", "boot-1", "26:1"}, {"node", "boot-2", "26:1"}));
  EXPECT_TRUE(same_host({"node", "boot-1", "26:1"}, {"renamed", "boot-1", "26:1"}));
}

TEST(Locality, C19_ContainersOfOneHostAreToldApartByTheirSharedMemory) {
  const Locality one{"node", "boot", "26:1"};
  const Locality other{"node", "boot", "31:1"};
  EXPECT_TRUE(same_kernel(one, other));
  EXPECT_FALSE(same_host(one, other));
  EXPECT_THROW(require_same_host(std::vector{one, other}), NotSupported);
}

TEST(Locality, C19_NodesOfOneHostAreToldApartAndFabricHandlesAreTheWayOut) {
  const Locality one{"host", "boot", "26:1", "a machine", 0};
  const Locality other{"host", "boot", "26:1", "a machine", 1};
  EXPECT_TRUE(same_node(one, one));
  EXPECT_TRUE(same_machine(one, other));
  EXPECT_FALSE(same_node(one, other));
  EXPECT_FALSE(same_host(one, other));
  try {
    require_same_host(std::vector{one, one, other});
    ADD_FAILURE() << "accepted";
  } catch (const NotSupported& error) {
    const std::string text = error.what();
    for (const std::string_view word : {"Rank 0", "node 0", "rank 2", "node 1", "a machine", "HandleType::fabric"})
      EXPECT_NE(text.find(word), std::string::npos) << word << ": " << text;
  }
}

TEST(Locality, C19_MachinesAreToldApartAndNoHandleHelps) {
  const Locality one{"host", "boot", "26:1", "a machine", 0};
  const Locality other{"host", "boot", "26:1", "another machine", 0};
  EXPECT_FALSE(same_machine(one, other));
  EXPECT_FALSE(same_node(one, other));
  try {
    require_same_host(std::vector{one, other});
    ADD_FAILURE() << "accepted";
  } catch (const NotSupported& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("another machine"), std::string::npos) << text;
    EXPECT_EQ(text.find("HandleType::fabric"), std::string::npos) << text;
  }
}

TEST(Locality, OfWhomTheDriverIsNotKnownGoesByTheHost) {
  const Locality unknown{"host", "boot", "26:1"};
  for (const Locality& known :
       {Locality{"host", "boot", "26:1", "real", 0}, Locality{"host", "boot", "26:1", "m", 3}}) {
    EXPECT_TRUE(same_node(unknown, known));
    EXPECT_TRUE(same_host(known, unknown));
  }
  EXPECT_FALSE(same_node(unknown, {"host", "other boot", "26:1", "real", 0}));
}

TEST(Locality, OfAnEmulatedDriverIsItsMachine) {
  const Driver one = Driver::emulated(emulator::Configuration());
  const Driver other = Driver::emulated(emulator::Configuration());
  EXPECT_EQ(Locality::of(one), Locality::of(one));
  EXPECT_EQ(Locality::of(one).boot_id, Locality::here().boot_id);
  EXPECT_FALSE(same_machine(Locality::of(one), Locality::of(other))) << "each has a machine of its own";
  EXPECT_TRUE(same_node(Locality::of(one), Locality::here()));
  const auto sent = Locality::from_bytes(Locality::of(one).to_bytes());
  ASSERT_TRUE(sent);
  EXPECT_EQ(*sent, Locality::of(one));
}

TEST(Locality, GoesByTheNameWhereTheSystemTellsNoBoot) {
  EXPECT_TRUE(same_kernel({"node", "", ""}, {"node", "", ""}));
  EXPECT_FALSE(same_kernel({"node", "", ""}, {"other", "", ""}));
  EXPECT_FALSE(same_kernel({"node", "", ""}, {"node", "boot", ""}));
}

}  // namespace
}  // namespace cuvmm::sharing
