#include "driver/decorated.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cuvmm/error.hpp"
#include "environment.hpp"
#include "fake_driver.hpp"

namespace cuvmm::driver {
namespace {

using test::EnvironmentVariable;
using test::FakeDriver;

class Decorated : public testing::Test {
 protected:
  EnvironmentVariable lie_{"CUVMM_LIE", nullptr};
  EnvironmentVariable fault_{"CUVMM_INJECT_FAULT", nullptr};
  EnvironmentVariable record_{"CUVMM_RECORD", nullptr};
  std::shared_ptr<FakeDriver> fake_ = std::make_shared<FakeDriver>();
};

TEST_F(Decorated, IsTheDriverItselfWhereNothingIsAsked) {
  EXPECT_EQ(decorated_from_environment(fake_), fake_);
  const EnvironmentVariable empty("CUVMM_INJECT_FAULT", "");
  EXPECT_EQ(decorated_from_environment(fake_), fake_);
}

TEST_F(Decorated, InjectsFaults) {
  const EnvironmentVariable fault("CUVMM_INJECT_FAULT", "cuMemRelease:2:UNKNOWN");
  const auto driver = decorated_from_environment(fake_);
  EXPECT_EQ(driver->cuMemRelease(1), CUDA_SUCCESS);
  EXPECT_EQ(driver->cuMemRelease(1), CUDA_ERROR_UNKNOWN);
}

TEST_F(Decorated, Lies) {
  const EnvironmentVariable lie("CUVMM_LIE", "keep_released_memory");
  EXPECT_EQ(decorated_from_environment(fake_)->cuMemRelease(1), CUDA_SUCCESS);
  EXPECT_TRUE(fake_->calls.empty());
}

TEST_F(Decorated, RecordsInjectedFaultsToo) {
  const std::string path = testing::TempDir() + "cuvmm_decorated_" + std::to_string(::getpid());
  const EnvironmentVariable fault("CUVMM_INJECT_FAULT", "cuMemRelease:1:UNKNOWN");
  const EnvironmentVariable record("CUVMM_RECORD", path.c_str());
  decorated_from_environment(fake_)->cuMemRelease(1);
  std::string line;
  std::getline(std::ifstream(path), line);
  std::filesystem::remove(path);
  EXPECT_NE(line.find("cuMemRelease(handle = 0x1) = CUDA_ERROR_UNKNOWN"), std::string::npos) << line;
}

TEST_F(Decorated, BlamesTheVariableThatCannotBeRead) {
  const EnvironmentVariable fault("CUVMM_INJECT_FAULT", "cuMemFlap:1:UNKNOWN");
  try {
    static_cast<void>(decorated_from_environment(fake_));
    FAIL() << "accepted";
  } catch (const InvalidUse& error) {
    EXPECT_EQ(std::string(error.what()).rfind("environment variable CUVMM_INJECT_FAULT(\"cuMemFlap:1:UNKNOWN\")", 0),
              0u)
        << error.what();
  }
}

}  // namespace
}  // namespace cuvmm::driver
