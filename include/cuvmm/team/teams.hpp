// All of the library's part for several ranks (cuvmm::team); MpiBootstrap is a part of its own (cuvmm::mpi).
#pragma once

#include "cuvmm/team/agreement.hpp"
#include "cuvmm/team/bootstrap.hpp"
#include "cuvmm/team/collectives.hpp"
#include "cuvmm/team/multicast_team.hpp"
#include "cuvmm/team/socket_bootstrap.hpp"
#include "cuvmm/team/symmetric_memory.hpp"
#include "cuvmm/team/team.hpp"
