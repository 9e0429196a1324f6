// The tour itself: the stops, one after the other.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "driver/interface.hpp"
#include "tour/options.hpp"
#include "tour/report.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {

// The stops of those ids, in the tour's order; all of them if there are no ids. Throws InputError, which names the
// stops that there are, for an id that is none.
[[nodiscard]] std::vector<Stop> choose_stops(const std::vector<std::string>& ids);

// One line for each stop: its id, its name and what it shows.
[[nodiscard]] std::string list_of_stops();

// Does what the options ask for and returns the exit status: 0 if no stop failed, 1 if one did, 2 if the input or the
// driver cannot be used. The report goes to standard output; remarks and errors to standard error.
[[nodiscard]] int run_tour(const Options& options);

}  // namespace cuvmm::tour
