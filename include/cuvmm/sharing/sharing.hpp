// All of the library's part that shares memory between processes (cuvmm::sharing).
#pragma once

#include "cuvmm/sharing/shareable_handle.hpp"
