#include "driver/fault.hpp"

#include <gtest/gtest.h>

#include "cuvmm/error.hpp"

namespace cuvmm::driver {
namespace {

using namespace abi;

TEST(Fault, ReadsAList) {
  const std::vector<Fault> faults = parse_faults("cuMemMap:3:OUT_OF_MEMORY,any:10+:CUDA_ERROR_UNKNOWN:after");
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0], (Fault{EntryPoint::cuMemMap, 3, CUDA_ERROR_OUT_OF_MEMORY, FaultTiming::instead, false}));
  EXPECT_EQ(faults[1], (Fault{std::nullopt, 10, CUDA_ERROR_UNKNOWN, FaultTiming::after, true}));
  EXPECT_TRUE(parse_faults("").empty());
}

TEST(Fault, WritesWhatItReads) {
  for (const char* text : {"cuMemMap:3:OUT_OF_MEMORY", "any:1+:NOT_READY:after"})
    EXPECT_EQ(to_string(parse_faults(text).at(0)), text);
}

TEST(Fault, RefusesWhatItCannotReadAndQuotesIt) {
  for (const char* text : {"cuMemMapp:3:OUT_OF_MEMORY", "cuMemMap:0:OUT_OF_MEMORY", "cuMemMap:-1:OUT_OF_MEMORY",
                           "cuMemMap:x:OUT_OF_MEMORY", "cuMemMap::OUT_OF_MEMORY", "cuMemMap:3", "cuMemMap:3:OUT_OF_MEM",
                           "cuMemMap:3:SUCCESS", "cuMemMap:3:0", "cuMemMap:3:UNKNOWN:before",
                           "cuMemMap:3:UNKNOWN:after:all", ",", "cuMemMap:99999999999999999999:UNKNOWN"}) {
    try {
      static_cast<void>(parse_faults(text));
      ADD_FAILURE() << "accepted " << text;
    } catch (const InvalidUse& error) {
      EXPECT_NE(error.way_out().find("cuMemMap:3:OUT_OF_MEMORY"), std::string::npos);
      EXPECT_FALSE(error.rule().empty());
    }
  }
}

TEST(Fault, QuotesOnlyTheBadItem) {
  try {
    static_cast<void>(parse_faults("cuMemMap:3:UNKNOWN,cuMemFlap:1:UNKNOWN"));
    FAIL() << "accepted";
  } catch (const InvalidUse& error) {
    EXPECT_EQ(error.failure().arguments, "\"cuMemFlap:1:UNKNOWN\"");
    EXPECT_EQ(error.rule(), "There is no entry point \"cuMemFlap\"");
  }
}

}  // namespace
}  // namespace cuvmm::driver
