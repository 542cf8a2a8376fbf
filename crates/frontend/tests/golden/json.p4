{
  "header_types" : [
    { "name" : "scalars_0", "id" : 0 }
  ],
  "parsers" : [],
  "pipelines" : []
}
