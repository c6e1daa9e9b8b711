#include "runtime/cuda/device/shared_modules.h"

namespace cellc {

namespace {

ObjectKey kind_of(const GpuSource& source) {
  ObjectIdentity identity;
  identity.text = source.alike.empty() ? source.text : source.alike;
  for (const std::string& option : source.options) identity.options += option + '\n';
  return object_key(identity);
}

}  // namespace

GpuModule SharedModules::load(const GpuSource& source) {
  Known& known = known_[kind_of(source)];
  GpuModule module;
  module.module = known.module.lock();
  module.cache = known.cache;
  if (module) return module;
  module = below_.load(source);
  known = {module.module, module.cache};
  return module;
}

double SharedModules::compile_ahead(const std::vector<GpuSource>& sources) {
  std::map<ObjectKey, const GpuSource*> kinds;
  std::vector<GpuSource> missing;
  for (const GpuSource& source : sources) {
    const ObjectKey kind = kind_of(source);
    const auto held = known_.find(kind);
    if ((held == known_.end() || held->second.module.expired()) && kinds.emplace(kind, &source).second)
      missing.push_back(source);
  }
  return missing.size() < 2 ? 0 : below_.compile_ahead(missing);
}

}  // namespace cellc
