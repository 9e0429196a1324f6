#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "command/driver_choice.hpp"
#include "tour/options.hpp"

namespace cuvmm::tour {
namespace {

Options parse(std::vector<std::string> arguments) {
  CLI::App command;
  Options options;
  add_options(command, options);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  command.parse(arguments);
  return options;
}

TEST(TourOptions, AFileIsEnough) {
  const Options options = parse({"README.md"});
  EXPECT_EQ(options.file, "README.md");
  EXPECT_EQ(options.driver, command::DriverChoice::automatic);
  EXPECT_EQ(options.devices, 1);
  EXPECT_FALSE(options.json);
  EXPECT_TRUE(options.stops.empty());
  EXPECT_EQ(contradiction(options), "");
}

TEST(TourOptions, AllOfThem) {
  const Options options =
      parse({"--driver", "emulated", "--devices", "2", "--json", "--stop", "4.16.2", "--stop", "4.16.3.4", "file"});
  EXPECT_EQ(options.driver, command::DriverChoice::emulated);
  EXPECT_EQ(options.devices, 2);
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.stops, (std::vector<std::string>{"4.16.2", "4.16.3.4"}));
  EXPECT_EQ(options.file, "file");
}

TEST(TourOptions, TheDriverIsOneOfThree) {
  EXPECT_EQ(parse({"f", "--driver", "auto"}).driver, command::DriverChoice::automatic);
  EXPECT_EQ(parse({"f", "--driver", "cuda"}).driver, command::DriverChoice::cuda);
  EXPECT_THROW(parse({"f", "--driver", "other"}), CLI::ValidationError);
  EXPECT_EQ(parse({"f", "--driver", "emulated"}).driver, command::DriverChoice::emulated);
  for (const char* number : {"0", "1", "2"}) EXPECT_THROW(parse({"f", "--driver", number}), CLI::ValidationError);
}

TEST(TourOptions, DevicesAreAPositiveNumber) {
  EXPECT_THROW(parse({"f", "--devices", "0"}), CLI::ValidationError);
  EXPECT_THROW(parse({"f", "--devices", "33"}), CLI::ValidationError);
  EXPECT_THROW(parse({"f", "--devices", "two"}), CLI::ParseError);
  EXPECT_EQ(parse({"f", "--devices", "32"}).devices, 32);
}

TEST(TourOptions, AFileIsNeededUnlessTheStopsAreListed) {
  EXPECT_NE(contradiction(parse({})), "");
  EXPECT_EQ(contradiction(parse({"--list"})), "");
  EXPECT_NE(contradiction(parse({"--list", "f"})), "");
  EXPECT_THROW(parse({"--list", "--json"}), CLI::ExcludesError);
}

TEST(TourOptions, OneFileOnly) {
  EXPECT_THROW(parse({"a", "b"}), CLI::ExtrasError);
}

}  // namespace
}  // namespace cuvmm::tour
