// All of the library's part that shares memory between processes (cuvmm::sharing).
#pragma once

#include "cuvmm/sharing/attached_range.hpp"
#include "cuvmm/sharing/deadline.hpp"
#include "cuvmm/sharing/descriptor_listener.hpp"
#include "cuvmm/sharing/descriptor_socket.hpp"
#include "cuvmm/sharing/handle_exchange.hpp"
#include "cuvmm/sharing/locality.hpp"
#include "cuvmm/sharing/message.hpp"
#include "cuvmm/sharing/published_range.hpp"
#include "cuvmm/sharing/range_publisher.hpp"
#include "cuvmm/sharing/shareable_handle.hpp"
#include "cuvmm/sharing/socket_address.hpp"
#include "cuvmm/sharing/withdrawal.hpp"
