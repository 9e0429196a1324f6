#include "cuvmm/driver.hpp"

#include <gtest/gtest.h>

#include "cuvmm/device.hpp"
#include "cuvmm/error.hpp"
#include "emulator/configuration.hpp"
#include "environment.hpp"
#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using test::EnvironmentVariable;

TEST(Driver, WrapsAnyDriver) {
  const auto fake = test::scripted_driver();
  fake->on_cuDriverGetVersion = [](int* version) {
    *version = 13000;
    return CUDA_SUCCESS;
  };
  const Driver driver = Driver::wrap(fake);
  EXPECT_EQ(driver.version(), 13000);
  EXPECT_EQ(driver.description(), "fake driver");
  EXPECT_FALSE(driver.is_emulated());
  EXPECT_EQ(driver.device_count(), 2);
  EXPECT_EQ(driver.devices().size(), 2u);
  EXPECT_EQ(&driver.interface(), fake.get());
  const Driver copy = driver;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(copy, driver);
  EXPECT_NE(driver, Driver::wrap(test::scripted_driver()));
}

TEST(Driver, ACountOfDevicesThatCannotBeIsTheDriversFault) {
  const auto fake = test::scripted_driver();
  int answered = -1;
  fake->on_cuDeviceGetCount = [&](int* count) {
    *count = answered;
    return CUDA_SUCCESS;
  };
  const Driver driver = Driver::wrap(fake);
  EXPECT_THROW(static_cast<void>(driver.devices()), Error);
  EXPECT_THROW(static_cast<void>(driver.device_count()), Error);
  answered = 0;
  EXPECT_TRUE(driver.devices().empty());
}

TEST(Driver, RefusesAnOrdinalThatIsNotThere) {
  const Driver driver = Driver::wrap(test::scripted_driver());
  for (const int ordinal : {-1, 2, 99}) {
    try {
      static_cast<void>(driver.device(DeviceOrdinal{ordinal}));
      ADD_FAILURE() << "accepted " << ordinal;
    } catch (const InvalidUse& error) {
      EXPECT_NE(error.rule().find("2 devices"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(driver.device(DeviceOrdinal{1}).ordinal(), DeviceOrdinal{1});
}

TEST(Driver, OpensTheEmulatorWhereItIsChosen) {
  const EnvironmentVariable choice("CUVMM_DRIVER", "emulated");
  const Driver driver = Driver::open();
  EXPECT_TRUE(driver.is_emulated());
  EXPECT_GE(driver.device_count(), 1) << "it is initialised";
}

TEST(Driver, RefusesAChoiceThatIsNone) {
  const EnvironmentVariable choice("CUVMM_DRIVER", "emulator");
  try {
    static_cast<void>(Driver::open());
    FAIL() << "accepted";
  } catch (const InvalidUse& error) {
    EXPECT_NE(std::string(error.what()).find("CUVMM_DRIVER = \"emulator\""), std::string::npos) << error.what();
    EXPECT_NE(error.way_out().find("emulated"), std::string::npos);
  }
}

// What a machine without a GPU says; one with a GPU has nothing to complain of.
TEST(Driver, TheCudaDriverIsOpenedOrItIsSaidWhyNot) {
  const EnvironmentVariable choice("CUVMM_DRIVER", nullptr);
  try {
    EXPECT_FALSE(Driver::open().is_emulated());
    EXPECT_EQ(Driver::open(), Driver::cuda()) << "one for the process";
  } catch (const DriverUnavailable& error) {
    EXPECT_NE(error.way_out().find("CUVMM_DRIVER=emulated"), std::string::npos) << error.what();
  }
}

TEST(Driver, EachEmulatedMachineIsItsOwn) {
  emulator::Configuration two;
  two.devices = 2;
  const Driver machine = Driver::emulated(two);
  EXPECT_EQ(machine.device_count(), 2);
  EXPECT_NE(machine, Driver::emulated(two));
}

TEST(Driver, TheEnvironmentConfiguresTheEmulatedMachine) {
  const EnvironmentVariable choice("CUVMM_DRIVER", "emulated");
  const EnvironmentVariable none("CUVMM_EMULATOR", nullptr);
  EXPECT_EQ(Driver::open().device_count(), 1);
  const EnvironmentVariable three("CUVMM_EMULATOR", "devices=3");
  EXPECT_EQ(Driver::open().device_count(), 3);
  const EnvironmentVariable wrong("CUVMM_EMULATOR", "devices=0");
  try {
    static_cast<void>(Driver::open());
    FAIL() << "accepted";
  } catch (const InvalidUse& error) {
    EXPECT_NE(std::string(error.what()).find("devices"), std::string::npos) << error.what();
  }
}

TEST(Driver, RefusesAConfigurationThatNoMachineCanHave) {
  emulator::Configuration none;
  none.devices = 0;
  EXPECT_THROW(static_cast<void>(Driver::emulated(none)), InvalidUse);
  none.devices = 1;
  EXPECT_NO_THROW(static_cast<void>(Driver::emulated(none)));
}

TEST(Driver, DecoratorsOfTheEnvironmentApplyToIt) {
  const EnvironmentVariable fault("CUVMM_INJECT_FAULT", "cuInit:1:NO_DEVICE");
  EXPECT_THROW(static_cast<void>(Driver::emulated()), DriverUnavailable);
}

TEST(Driver, OneThatWasMovedFromIsStillTheSame) {
  Driver driver = Driver::wrap(test::scripted_driver());
  const Driver moved = std::move(driver);
  EXPECT_EQ(driver, moved);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(driver.device_count(), 2);
  Driver other = Driver::wrap(test::scripted_driver());
  other = std::move(driver);
  EXPECT_EQ(other, moved);
  EXPECT_EQ(driver.description(), "fake driver");  // NOLINT(bugprone-use-after-move)
}

}  // namespace
}  // namespace cuvmm
