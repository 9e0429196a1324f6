#include "driver/advice.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>

#include "emulator/rule.hpp"

namespace cuvmm::driver {
namespace {

using namespace abi;

TEST(Advice, PrefersWhatIsKnownOfTheCall) {
  EXPECT_NE(advice_for(EntryPoint::cuMemMap, CUDA_ERROR_NOT_SUPPORTED).rule.find("whole allocation"),
            std::string_view::npos);
  EXPECT_NE(advice_for(EntryPoint::cuMemcpyDtoH, CUDA_ERROR_INVALID_VALUE).way_out.find("Grant"),
            std::string_view::npos);
  EXPECT_NE(advice_for(EntryPoint::cuMemUnmap, CUDA_ERROR_ILLEGAL_ADDRESS).way_out.find("Wait for all work"),
            std::string_view::npos);
  EXPECT_EQ(advice_for(EntryPoint::cuMemMap, CUDA_ERROR_UNKNOWN).rule, "");
}

TEST(Advice, EveryRuleHasAWayOut) {
  for (const EntryPointInfo& entry : entry_points)
    for (int code = 1; code < 1000; ++code) {
      const Advice advice = advice_for(entry.entry_point, static_cast<CUresult>(code));
      EXPECT_EQ(advice.rule.empty(), advice.way_out.empty()) << entry.name << ' ' << code;
    }
}

std::string without_brackets(std::string_view text) {
  std::string rest;
  bool within = false;
  for (const char letter : text) {
    if (letter == '(') within = true;
    if (!within) rest += letter;
    if (letter == ')') within = false;
  }
  return rest;
}

// Whether a text names a driver call to somebody who is to use the library. In brackets one may stand beside it.
bool speaks_of_driver_calls(std::string_view text) {
  const std::string rest = without_brackets(text);
  for (std::size_t at = rest.find("cu"); at != std::string::npos; at = rest.find("cu", at + 1)) {
    const bool begins_word = at == 0 || std::isalnum(static_cast<unsigned char>(rest[at - 1])) == 0;
    if (begins_word && at + 2 < rest.size() && std::isupper(static_cast<unsigned char>(rest[at + 2])) != 0) return true;
  }
  return rest.find("CU_") != std::string::npos || rest.find("requestedHandleTypes") != std::string::npos;
}

TEST(Advice, SpeaksToUsersOfTheLibrary) {
  EXPECT_TRUE(speaks_of_driver_calls("Ask cuDeviceCanAccessPeer"));
  EXPECT_TRUE(speaks_of_driver_calls("Ask for CU_MEM_HANDLE_TYPE_FABRIC"));
  EXPECT_FALSE(speaks_of_driver_calls("A focus on accuCuracy"));
  EXPECT_FALSE(speaks_of_driver_calls("Ask Device::can_access_peer (cuDeviceCanAccessPeer)"));
  for (const EntryPointInfo& entry : entry_points)
    for (int code = 1; code < 1000; ++code) {
      const Advice advice = advice_for(entry.entry_point, static_cast<CUresult>(code));
      EXPECT_FALSE(speaks_of_driver_calls(advice.way_out)) << entry.name << ' ' << code << ": " << advice.way_out;
    }
  // Rules that no call of the library can break, which makes no multicast objects.
  const std::set<std::string_view> of_others = {"GRANULARITY-OPTION",
                                                "DEFAULT-STREAMS-STAY",
                                                "CAPTURE-ISOLATED",
                                                "CAPTURE-WITHOUT-LEGACY-STREAM",
                                                "CAPTURE-NOT-IN-LEGACY-STREAM",
                                                "POOL-LIVE",
                                                "FREE-WHAT-WAS-ALLOCATED",
                                                "GRAPH-MEMORY",
                                                "MULTICAST-SIZE-GRANULARITY",
                                                "MULTICAST-HANDLE",
                                                "MULTICAST-REACH",
                                                "MULTICAST-BIND-SHAREABLE"};
  for (const emulator::RuleText& rule : emulator::rule_book) {
    const std::string_view ours = way_out_for_rule(rule.id);
    const std::string_view told = ours.empty() ? rule.way_out : ours;
    EXPECT_EQ(speaks_of_driver_calls(told), of_others.contains(rule.id)) << rule.id << ": " << told;
  }
}

TEST(Advice, OfAnEmulatedMachineNamesItsSettings) {
  for (const auto& [rule_id, setting, hardware] : {std::tuple{"CREATE-FABRIC-IMEX", "imex-channels=1", "/dev/nvidia"},
                                                   std::tuple{"DEVICE-EXISTS", "devices=N", "CUDA_VISIBLE_DEVICES"}}) {
    const std::string emulated(way_out_for_rule(rule_id, true));
    EXPECT_NE(emulated.find(setting), std::string::npos) << emulated;
    EXPECT_EQ(emulated.find(hardware), std::string::npos) << emulated;
    EXPECT_EQ(emulated, way_out_where_emulated(rule_id));
    EXPECT_FALSE(speaks_of_driver_calls(emulated)) << emulated;
  }
  EXPECT_NE(way_out_for_rule("DEVICE-EXISTS").find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  EXPECT_EQ(way_out_for_rule("MAP-WHOLE-ALLOCATION", true), way_out_for_rule("MAP-WHOLE-ALLOCATION"));
  EXPECT_TRUE(way_out_where_emulated("MAP-WHOLE-ALLOCATION").empty());
}

TEST(Advice, EveryVirtualMemoryCallExplainsInvalidValue) {
  for (const EntryPointInfo& entry : entry_points)
    if (entry.group == EntryPointGroup::vmm) {
      EXPECT_NE(advice_for(entry.entry_point, CUDA_ERROR_INVALID_VALUE).rule, "") << entry.name;
    }
}

TEST(Advice, OnlyAllocatingCallsRunOutOfDeviceMemory) {
  EXPECT_EQ(kind_of(EntryPoint::cuMemCreate, CUDA_ERROR_OUT_OF_MEMORY, false), ErrorKind::out_of_device_memory);
  EXPECT_EQ(kind_of(EntryPoint::cuMemAlloc, CUDA_ERROR_OUT_OF_MEMORY, false), ErrorKind::out_of_device_memory);
  EXPECT_EQ(kind_of(EntryPoint::cuMemExportToShareableHandle, CUDA_ERROR_OUT_OF_MEMORY, false),
            ErrorKind::driver_failure);
  EXPECT_EQ(kind_of(EntryPoint::cuMemImportFromShareableHandle, CUDA_ERROR_OUT_OF_MEMORY, false),
            ErrorKind::driver_failure);
}

TEST(Advice, KindsOfCodes) {
  const auto kind = [](CUresult result) { return kind_of(EntryPoint::cuMemSetAccess, result, false); };
  EXPECT_EQ(kind(CUDA_ERROR_INVALID_VALUE), ErrorKind::invalid_use);
  EXPECT_EQ(kind(CUDA_ERROR_NOT_SUPPORTED), ErrorKind::not_supported);
  EXPECT_EQ(kind(CUDA_ERROR_NOT_PERMITTED), ErrorKind::not_permitted);
  EXPECT_EQ(kind(CUDA_ERROR_ILLEGAL_ADDRESS), ErrorKind::device_lost);
  EXPECT_EQ(kind(CUDA_ERROR_TIMEOUT), ErrorKind::timed_out);
  EXPECT_EQ(kind(CUDA_ERROR_NO_DEVICE), ErrorKind::driver_unavailable);
  EXPECT_EQ(kind(CUDA_ERROR_SYSTEM_NOT_READY), ErrorKind::driver_failure);
  EXPECT_EQ(kind_of(EntryPoint::cuMemMap, CUDA_ERROR_NOT_SUPPORTED, false), ErrorKind::invalid_use);
  EXPECT_EQ(kind_of(EntryPoint::cuMemImportFromShareableHandle, CUDA_ERROR_UNKNOWN, false), ErrorKind::invalid_use);
}

}  // namespace
}  // namespace cuvmm::driver
