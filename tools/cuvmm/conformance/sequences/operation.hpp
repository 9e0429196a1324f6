// The operations of which sequences consist, each a driver's entry point or a step of the program around it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/sequences/call.hpp"
#include "conformance/sequences/player.hpp"
#include "conformance/sequences/random.hpp"
#include "conformance/sequences/world.hpp"

namespace cuvmm::conformance {

// What of the work before it a call needs to be done, so that its answer, or what it copies, does not depend on chance;
// and so that no memory goes that work still uses.
enum class Order {
  any,        // nothing
  all_done,   // all of it
  by_legacy,  // what does not run on the legacy stream, on which it puts work itself
  by_stream,  // what does not run on the stream of its first argument, on which it puts work itself
};

struct Operation {
  std::string_view name;        // the entry point's, or a word in brackets
  std::string_view parameters;  // the names of its arguments, apart by spaces
  int weight;                   // how often it is drawn, beside others
  Order order;

  // Draws its arguments: valid ones mostly, and wrong ones that are safe on a real driver. Nothing if there are none
  // in this world.
  std::optional<Call> (*draw)(const World&, Random&);
  // Makes the call.
  Step (*perform)(const Call&, Player&);
  // What is different in the world once it has succeeded. Null if nothing is.
  void (*succeeded)(const Call&, World&);
  // What is different then, whatever was answered.
  void (*ended)(const Call&, World&) = nullptr;
};

// All of them, in an order that is part of the generator.
[[nodiscard]] const std::vector<Operation>& operations();

// The groups, each in the file of its name.
[[nodiscard]] std::vector<Operation> memory_operations();
[[nodiscard]] std::vector<Operation> address_operations();
[[nodiscard]] std::vector<Operation> mapping_operations();
[[nodiscard]] std::vector<Operation> content_operations();
[[nodiscard]] std::vector<Operation> query_operations();
[[nodiscard]] std::vector<Operation> stream_operations();
[[nodiscard]] std::vector<Operation> capture_operations();

}  // namespace cuvmm::conformance
