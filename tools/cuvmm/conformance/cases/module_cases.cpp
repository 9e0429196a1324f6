// Modules, functions, and the shapes of launches.
#include <array>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/kernels.hpp"

namespace cuvmm::conformance {

namespace {

CUresult load(Environment& cuda, const void* image) {
  CUmodule module = nullptr;
  return cuda->cuModuleLoadData(&module, image);
}

void add_images(Table& table) {
  table.add("module.load", [](Environment& cuda) { return load(cuda, kernel_image()); });
  table.add("module.load_null_out", [](Environment& cuda) { return cuda->cuModuleLoadData(nullptr, kernel_image()); });
  table.add("module.load_null", [](Environment& cuda) { return load(cuda, nullptr); });
  table.add("module.load_empty_text", [](Environment& cuda) { return load(cuda, ""); });
  table.add("module.load_other_text", [](Environment& cuda) { return load(cuda, "This is not a program."); });
  table.add("module.load_zeros", [](Environment& cuda) {
    static const std::array<char, 4096> zeros{};
    return load(cuda, zeros.data());
  });
  table.add("module.load_syntax_error", [](Environment& cuda) {
    return load(cuda, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry broken( {\n");
  });
  table.add("module.load_version_too_new", [](Environment& cuda) {
    return load(cuda, ".version 99.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n");
  });
  table.add("module.load_target_too_new", [](Environment& cuda) {
    return load(cuda, ".version 7.0\n.target sm_999\n.address_size 64\n.visible .entry empty() { ret; }\n");
  });
  table.add("module.load_no_kernel",
            [](Environment& cuda) { return load(cuda, ".version 7.0\n.target sm_70\n.address_size 64\n"); });
  table.add("module.unload", [](Environment& cuda) {
    const Kernels kernels{cuda};
    return cuda->cuModuleUnload(kernels.module());
  });
  table.add("module.unload_null", [](Environment& cuda) { return cuda->cuModuleUnload(nullptr); });
  table.add("module.unload_from_other_context", [](Environment& cuda) {
    const Kernels kernels{cuda};
    cuda.new_context();
    return cuda->cuModuleUnload(kernels.module());
  });
}

void add_functions(Table& table) {
  const std::pair<const char*, const char*> names[] = {
      {"found", store_kernel}, {"missing", "conformance_nothing"}, {"empty_name", ""}, {"prefix", "conformance_stor"}};
  for (const auto& [id, name] : names)
    table.add(std::string{"module.function_"} + id, [name = name](Environment& cuda) {
      const Kernels kernels{cuda};
      CUfunction function = nullptr;
      return cuda->cuModuleGetFunction(&function, kernels.module(), name);
    });
  table.add("module.function_null_arguments", [](Environment& cuda) {
    const Kernels kernels{cuda};
    CUfunction function = nullptr;
    return spaces({cuda->cuModuleGetFunction(nullptr, kernels.module(), store_kernel),
                   cuda->cuModuleGetFunction(&function, kernels.module(), nullptr),
                   cuda->cuModuleGetFunction(&function, nullptr, store_kernel)});
  });
}

struct Shape {
  const char* name;
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared = 0;
};

constexpr Shape shapes[] = {
    {"grid_0", {0, 1, 1}, {1, 1, 1}},
    {"grid_y_0", {1, 0, 1}, {1, 1, 1}},
    {"block_0", {1, 1, 1}, {0, 1, 1}},
    {"block_z_0", {1, 1, 1}, {1, 1, 0}},
    {"block_1024", {1, 1, 1}, {1024, 1, 1}},
    {"block_1025", {1, 1, 1}, {1025, 1, 1}},
    {"block_32x33", {1, 1, 1}, {32, 33, 1}},
    {"block_z_65", {1, 1, 1}, {1, 1, 65}},
    {"grid_y_65535", {1, 65535, 1}, {1, 1, 1}},
    {"grid_y_65536", {1, 65536, 1}, {1, 1, 1}},
    {"grid_x_2^31", {0x80000000, 1, 1}, {1, 1, 1}},
    {"shared_48K", {1, 1, 1}, {1, 1, 1}, 48 * 1024},
    {"shared_48K+1", {1, 1, 1}, {1, 1, 1}, 48 * 1024 + 1},
    {"shared_1M", {1, 1, 1}, {1, 1, 1}, 1024 * 1024},
};

CUresult launch(Environment& cuda, const Kernels& kernels, const Shape& shape, void** parameters) {
  return cuda->cuLaunchKernel(kernels.function(store_kernel), shape.grid[0], shape.grid[1], shape.grid[2],
                              shape.block[0], shape.block[1], shape.block[2], shape.shared, nullptr, parameters,
                              nullptr);
}

void add_shapes(Table& table) {
  for (const Shape& shape : shapes)
    table.add(std::string{"module.launch_"} + shape.name, [shape](Environment& cuda) {
      const Kernels kernels{cuda};
      CUdeviceptr address = cuda.mapped();
      unsigned value = 1;
      void* parameters[] = {&address, &value};
      return spaces({launch(cuda, kernels, shape, parameters), cuda->cuCtxSynchronize()});
    });
}

void add_launches(Table& table) {
  constexpr static Shape single{"", {1, 1, 1}, {1, 1, 1}};
  table.add("module.launch", [](Environment& cuda) {
    const Kernels kernels{cuda};
    const CUdeviceptr address = cuda.mapped();
    return spaces({kernels.store(address, 41), cuda->cuCtxSynchronize(), cuda.read_word(address)});
  });
  table.add("module.launch_null_parameters", [](Environment& cuda) {
    const Kernels kernels{cuda};
    return launch(cuda, kernels, single, nullptr);
  });
  table.add("module.launch_null_function", [](Environment& cuda) {
    return cuda->cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  });
  table.add("module.launch_extra", [](Environment& cuda) {
    const Kernels kernels{cuda};
    const CUdeviceptr address = cuda.mapped();
    struct {
      CUdeviceptr address;
      unsigned value;
    } packed{address, 43};
    std::size_t size = 12;
    // The markers are those of cuda.h: buffer pointer 1, buffer size 2, end 0.
    void* extra[] = {as_pointer(1), &packed, as_pointer(2), &size, nullptr};
    const CUresult result = cuda->cuLaunchKernel(kernels.function(store_kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                                                 static_cast<void**>(extra));
    return spaces({result, cuda->cuCtxSynchronize(), cuda.read_word(address)});
  });
  table.add("module.launch_parameters_and_extra", [](Environment& cuda) {
    const Kernels kernels{cuda};
    CUdeviceptr address = cuda.mapped();
    unsigned value = 1;
    std::size_t size = 12;
    void* parameters[] = {&address, &value};
    void* extra[] = {as_pointer(1), &address, as_pointer(2), &size, nullptr};
    return cuda->cuLaunchKernel(kernels.function(store_kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters,
                                static_cast<void**>(extra));
  });
  table.add("module.launch_from_other_context", [](Environment& cuda) {
    const Kernels kernels{cuda};
    const CUfunction function = kernels.function(store_kernel);
    CUdeviceptr address = cuda.mapped();
    unsigned value = 1;
    void* parameters[] = {&address, &value};
    cuda.new_context();
    return cuda->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  });
  table.add("module.launch_in_other_contexts_stream", [](Environment& cuda) {
    const Kernels kernels{cuda};
    const CUdeviceptr address = cuda.mapped();
    cuda.new_context();
    const CUstream stream = cuda.stream();
    cuda.make_current(cuda.context());
    return kernels.store(address, 1, stream);
  });
}

}  // namespace

void add_module_cases(Table& table) {
  add_images(table);
  add_functions(table);
  add_shapes(table);
  add_launches(table);
}

}  // namespace cuvmm::conformance
