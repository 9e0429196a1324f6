// Which driver is asked, and what it is compared with.
#pragma once

#include "conformance/case_command.hpp"
#include "conformance/findings.hpp"
#include "conformance/options.hpp"
#include "conformance/recordings.hpp"

namespace cuvmm::conformance {

struct ChosenSubject {
  Subject subject;
  DriverOfProcess process;                 // that driver, for the processes that are started
  const Recordings* recordings = nullptr;  // never null
};

// Opens the driver of the options to see what it is. Throws cuvmm::Error, command::InputError or std::invalid_argument
// if there is none, or if nothing was recorded for the profile.
[[nodiscard]] ChosenSubject choose_subject(const Options& options);

// The recordings of the profile of the options. Throws command::InputError if there are none.
[[nodiscard]] const Recordings& recordings_of(const Options& options);

}  // namespace cuvmm::conformance
