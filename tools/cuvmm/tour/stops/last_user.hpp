// The part of 4.16.3.5 that takes several processes: shared memory goes with its last user, whoever that is.
#pragma once

#include "tour/stop.hpp"

namespace cuvmm::tour {

// One process makes memory and exports it, two import it; they give it back in every order, and one is killed.
void show_last_user(Visit& visit, Gpu& gpu);

}  // namespace cuvmm::tour
