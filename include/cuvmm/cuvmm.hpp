// All of the library.
#pragma once

#include "cuvmm/access_grant.hpp"
#include "cuvmm/address_reservation.hpp"
#include "cuvmm/capabilities.hpp"
#include "cuvmm/context.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/device.hpp"
#include "cuvmm/dma_buf.hpp"
#include "cuvmm/driver.hpp"
#include "cuvmm/error.hpp"
#include "cuvmm/mapping.hpp"
#include "cuvmm/memory_properties.hpp"
#include "cuvmm/physical_memory.hpp"
#include "cuvmm/pointer_info.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/unique_descriptor.hpp"
#include "cuvmm/units.hpp"
