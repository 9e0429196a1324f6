#include "cuvmm/sharing/locality.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

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
  for (const Locality& each : {Locality{longest, "", ""}, Locality{"", longest, ""}, Locality{"", "", longest}})
    EXPECT_EQ(Locality::from_bytes(each.to_bytes()), each);
  for (const Locality& each : {Locality{too_long, "", ""}, Locality{"", too_long, ""}, Locality{"", "", too_long}})
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

TEST(Locality, GoesByTheNameWhereTheSystemTellsNoBoot) {
  EXPECT_TRUE(same_kernel({"node", "", ""}, {"node", "", ""}));
  EXPECT_FALSE(same_kernel({"node", "", ""}, {"other", "", ""}));
  EXPECT_FALSE(same_kernel({"node", "", ""}, {"node", "boot", ""}));
}

}  // namespace
}  // namespace cuvmm::sharing
