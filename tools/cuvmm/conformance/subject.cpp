#include "conformance/subject.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "command/input_error.hpp"
#include "command/words.hpp"
#include "cuvmm/device.hpp"
#include "emulator/configuration.hpp"

namespace cuvmm::conformance {
namespace {

constexpr int most_devices = 2;  // that a case uses
constexpr const char* default_profile = "h200-580";

}  // namespace

const Recordings& recordings_of(const Options& options) {
  const std::string profile = options.profile.value_or(default_profile);
  if (const Recordings* const found = find_recordings(profile); found != nullptr) return *found;
  throw command::InputError(fmt::format("No answers are recorded for the profile {}; there are: {}.",
                                        command::quoted(profile), fmt::join(recorded_profiles(), ", ")));
}

ChosenSubject choose_subject(const Options& options) {
  ChosenSubject chosen;
  chosen.recordings = &recordings_of(options);
  const command::OpenedDriver opened = command::open_driver(options.driver, options.devices.value_or(1));
  Subject& subject = chosen.subject;
  subject.driver = opened.driver.description();
  subject.remark = opened.remark;
  subject.emulated = opened.driver.is_emulated();
  if (subject.emulated)
    subject.stepped = emulator::Configuration::from_environment(1).scheduler == emulator::Scheduler::stepped;
  subject.device = opened.driver.device(DeviceOrdinal(0)).name();
  subject.devices =
      options.devices.value_or(subject.emulated ? most_devices : std::min(opened.driver.device_count(), most_devices));
  subject.profile = chosen.recordings->profile;
  subject.machine = chosen.recordings->machine;
  chosen.process.cuda = !subject.emulated;
  chosen.process.devices = subject.devices;
  chosen.process.profile = options.profile.value_or("");
  if (subject.emulated) static_cast<void>(chosen.process.factory());  // so that a bad setting is told once, and here
  return chosen;
}

}  // namespace cuvmm::conformance
