#include "driver/result_names.hpp"

#include <gtest/gtest.h>

namespace cuvmm::driver {
namespace {

TEST(ResultNames, NamesCodes) {
  EXPECT_EQ(result_name(abi::CUDA_SUCCESS), "CUDA_SUCCESS");
  EXPECT_EQ(result_name(abi::CUDA_ERROR_NOT_PERMITTED), "CUDA_ERROR_NOT_PERMITTED");
  EXPECT_EQ(result_name(static_cast<abi::CUresult>(4)), "CUDA_ERROR_DEINITIALIZED");
  EXPECT_EQ(result_name(static_cast<abi::CUresult>(4444)), "");
}

TEST(ResultNames, FindsCodesByLongAndShortNames) {
  EXPECT_EQ(find_result("CUDA_ERROR_OUT_OF_MEMORY"), abi::CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(find_result("ERROR_OUT_OF_MEMORY"), abi::CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(find_result("OUT_OF_MEMORY"), abi::CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(find_result("SUCCESS"), abi::CUDA_SUCCESS);
  EXPECT_EQ(find_result("OUT_OF_MEM"), std::nullopt);
  EXPECT_EQ(find_result(""), std::nullopt);
}

}  // namespace
}  // namespace cuvmm::driver
