// cuGetProcAddress in both of its forms, asked of the driver's library itself.
#include <dlfcn.h>

#include <limits>
#include <string_view>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

using SecondForm = CUresult (*)(const char*, void**, int, unsigned long long, CUdriverProcAddressQueryResult*);
using FirstForm = CUresult (*)(const char*, void**, int, unsigned long long);

template <class Function>
Function exported(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

// What is asked: the answers do not depend on where functions lie.
struct Question {
  const char* name = "cuMemMap";
  int version = 13000;
  unsigned long long flags = 0;
};

void* place_of_none() {
  static int place = 0;
  return &place;
}

std::string pointer_in_words(const void* function) {
  if (function == place_of_none()) return "untouched";
  return function == nullptr ? "null" : "function";
}

// "OK/function/0": the code, what was handed out, and the status, which is 9 where none was written.
std::string ask_second_form(const Question& question) {
  const auto look_up = exported<SecondForm>("cuGetProcAddress_v2");
  if (look_up == nullptr) return "(not exported)";
  void* function = place_of_none();
  auto status = static_cast<CUdriverProcAddressQueryResult>(9);
  const CUresult result = look_up(question.name, &function, question.version, question.flags, &status);
  return slashes({result, pointer_in_words(function), static_cast<int>(status)});
}

std::string ask_first_form(const Question& question) {
  const auto look_up = exported<FirstForm>("cuGetProcAddress");
  if (look_up == nullptr) return "(not exported)";
  void* function = place_of_none();
  const CUresult result = look_up(question.name, &function, question.version, question.flags);
  return slashes({result, pointer_in_words(function)});
}

void add_question(Table& table, const std::string& id, const Question& question) {
  table.add(
      "proc_address." + id, [question](Environment&) { return ask_second_form(question); }, needs_driver_library);
  table.add(
      "proc_address.first_form." + id, [question](Environment&) { return ask_first_form(question); },
      needs_driver_library);
}

// A name as a part of a case's: without what nobody sees at its end.
std::string word_of(std::string_view name) {
  if (name.empty()) return "empty";
  if (name.back() == ' ') return std::string{name.substr(0, name.size() - 1)} + "_and_blank";
  return std::string{name};
}

void add_names(Table& table) {
  for (const char* const name : {"cuNothing", "", "cumemmap", "cuMemMap ", "cuMemAlloc_v2", "cuMemcpyHtoD_v2_ptds",
                                 "malloc", "cuInit", "cuGetProcAddress", "cuGetProcAddress_v2", "cuMemcpy"})
    add_question(table, "name_" + word_of(name), {name});
}

void add_versions(Table& table) {
  for (const int version : {std::numeric_limits<int>::min(), -1, 0, 1, 1000, 1999, 2000, 10010, 10019, 10020, 10021,
                            12090, 12999, 13000, 13001, 13009, 13010, 14000, std::numeric_limits<int>::max()})
    add_question(table, "version_" + std::to_string(version), {"cuMemMap", version, 0});
  for (const int version : {1999, 2000, 3010, 3019, 3020, 3030})
    add_question(table, "of_two_forms_version_" + std::to_string(version), {"cuMemAlloc", version, 0});
  for (const int version : {1000, 13010}) {
    add_question(table, "unknown_name_version_" + std::to_string(version), {"cuNothing", version, 0});
    add_question(table, "oldest_name_version_" + std::to_string(version), {"cuInit", version, 0});
  }
}

void add_flags(Table& table) {
  for (const unsigned long long flags : {1ULL, 2ULL, 3ULL, 4ULL, 8ULL, 1ULL << 32, 1ULL << 63}) {
    add_question(table, "flags_" + std::to_string(flags), {"cuMemMap", 13000, flags});
    add_question(table, "of_streams_flags_" + std::to_string(flags), {"cuMemcpyAsync", 13000, flags});
  }
  table.add(
      "proc_address.per_thread_form_is_another",
      [](Environment&) {
        const auto look_up = exported<SecondForm>("cuGetProcAddress_v2");
        void* plain = nullptr;
        void* legacy = nullptr;
        void* per_thread = nullptr;
        const CUresult first = look_up("cuMemcpyAsync", &plain, 13000, 0, nullptr);
        const CUresult second = look_up("cuMemcpyAsync", &legacy, 13000, 1, nullptr);
        const CUresult third = look_up("cuMemcpyAsync", &per_thread, 13000, 2, nullptr);
        return spaces(
            {first, second, third, plain == legacy ? "same" : "distinct", plain == per_thread ? "same" : "distinct"});
      },
      needs_driver_library);
  table.add(
      "proc_address.older_form_is_another",
      [](Environment&) {
        const auto look_up = exported<SecondForm>("cuGetProcAddress_v2");
        void* older = nullptr;
        void* newer = nullptr;
        const CUresult first = look_up("cuMemAlloc", &older, 2000, 0, nullptr);
        const CUresult second = look_up("cuMemAlloc", &newer, 3020, 0, nullptr);
        return spaces({first, second, older == newer ? "same" : "distinct"});
      },
      needs_driver_library);
}

void add_nulls(Table& table) {
  table.add(
      "proc_address.null_name",
      [](Environment&) {
        void* function = place_of_none();
        auto status = static_cast<CUdriverProcAddressQueryResult>(9);
        const CUresult result = exported<SecondForm>("cuGetProcAddress_v2")(nullptr, &function, 13000, 0, &status);
        return slashes({result, pointer_in_words(function), static_cast<int>(status)});
      },
      needs_driver_library);
  table.add(
      "proc_address.null_function",
      [](Environment&) {
        auto status = static_cast<CUdriverProcAddressQueryResult>(9);
        const CUresult result = exported<SecondForm>("cuGetProcAddress_v2")("cuMemMap", nullptr, 13000, 0, &status);
        return slashes({result, static_cast<int>(status)});
      },
      needs_driver_library);
  table.add(
      "proc_address.null_status",
      [](Environment&) {
        void* function = place_of_none();
        const CUresult known = exported<SecondForm>("cuGetProcAddress_v2")("cuMemMap", &function, 13000, 0, nullptr);
        const std::string first = slashes({known, pointer_in_words(function)});
        function = place_of_none();
        const CUresult unknown = exported<SecondForm>("cuGetProcAddress_v2")("cuNothing", &function, 13000, 0, nullptr);
        return spaces({first, slashes({unknown, pointer_in_words(function)})});
      },
      needs_driver_library);
  table.add(
      "proc_address.first_form.null_name",
      [](Environment&) {
        void* function = place_of_none();
        const CUresult result = exported<FirstForm>("cuGetProcAddress")(nullptr, &function, 13000, 0);
        return slashes({result, pointer_in_words(function)});
      },
      needs_driver_library);
  table.add(
      "proc_address.first_form.null_function",
      [](Environment&) { return exported<FirstForm>("cuGetProcAddress")("cuMemMap", nullptr, 13000, 0); },
      needs_driver_library);
}

// None of them needs cuInit; and a function found before it works after it.
void add_states(Table& table) {
  table.add(
      "proc_address.function_works",
      [](Environment&) {
        const auto look_up = exported<SecondForm>("cuGetProcAddress_v2");
        void* init = nullptr;
        void* count = nullptr;
        const CUresult first = look_up("cuInit", &init, 13000, 0, nullptr);
        const CUresult second = look_up("cuDeviceGetCount", &count, 13000, 0, nullptr);
        int devices = 0;
        const auto get_count = reinterpret_cast<CUresult (*)(int*)>(count);
        const CUresult before = get_count(&devices);
        const CUresult initialised = reinterpret_cast<CUresult (*)(unsigned)>(init)(0);
        return spaces({first, second, before, initialised, get_count(&devices)});
      },
      needs_driver_library);
}

}  // namespace

void add_proc_address_cases(Table& table) {
  add_names(table);
  add_versions(table);
  add_flags(table);
  add_nulls(table);
  add_states(table);
}

}  // namespace cuvmm::conformance
